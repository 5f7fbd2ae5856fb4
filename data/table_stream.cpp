#include "diffeo/data/table_stream.h"

namespace diffeo {
namespace {

constexpr int64_t values_at_once = int64_t{1} << 22;

/// Reads a table piece by piece, in large pieces whatever the batches are.
class Pieces {
 public:
  Pieces(TableSource source, torch::Dtype dtype) : source_(std::move(source)), dtype_(dtype) {
    const auto info = table_info(source_);
    rows_ = info.rows;
    at_once_ = std::max<int64_t>(1, values_at_once / std::max<int64_t>(1, static_cast<int64_t>(info.columns.size())));
  }

  int64_t rows() const { return rows_; }

  Tensor rows(int64_t begin, int64_t end) {
    if (begin >= begin_ && end <= end_) return piece_.slice(0, begin - begin_, end - begin_);
    begin_ = begin;
    end_ = std::min(rows_, std::max(end, begin + at_once_));
    piece_ = read_table(source_, dtype_, begin_, end_).values;
    return piece_.slice(0, 0, end - begin);
  }

 private:
  TableSource source_;
  torch::Dtype dtype_;
  int64_t rows_ = 0, at_once_ = 1, begin_ = 0, end_ = 0;
  Tensor piece_;
};

class TableStream : public BatchStream {
 public:
  TableStream(const TableSource& x, const std::optional<TableSource>& context, int64_t batch_size, torch::Dtype dtype)
      : x_(x, dtype), batch_size_(batch_size) {
    check(batch_size > 0, "batch size must be at least 1, got ", batch_size);
    if (!context) return;
    context_.emplace(*context, dtype);
    check(context_->rows() == x_.rows(), x.file, ": ", x.object, " has ", x_.rows(), " rows, but its context, ",
          context->object, " of ", context->file, ", has ", context_->rows());
  }

  bool next(Batch& batch) override {
    const auto begin = at_, end = std::min(x_.rows(), at_ + batch_size_);
    if (begin >= end) return false;
    at_ = end;
    batch = {.x = x_.rows(begin, end),
             .context = context_ ? context_->rows(begin, end) : Tensor(),
             .weight = {},
             .label = {}};
    return true;
  }

  void skip(int64_t batches) override {
    const auto left = (x_.rows() - at_ + batch_size_ - 1) / batch_size_;
    at_ = batches >= left ? x_.rows() : at_ + batches * batch_size_;
  }

 private:
  Pieces x_;
  std::optional<Pieces> context_;
  int64_t batch_size_, at_ = 0;
};

}  // namespace

std::unique_ptr<BatchStream> table_stream(const TableSource& x, const std::optional<TableSource>& context,
                                          int64_t batch_size, torch::Dtype dtype) {
  return std::make_unique<TableStream>(x, context, batch_size, dtype);
}

}  // namespace diffeo
