#include "diffeo/data/image_rows.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>

#include "diffeo/data/shuffle.h"

namespace diffeo {
namespace {

class FlippedStream : public BatchStream {
 public:
  FlippedStream(std::unique_ptr<BatchStream> rows, Tensor mirrored, uint64_t seed)
      : rows_(std::move(rows)), mirrored_(std::move(mirrored)), seed_(seed) {}

  bool next(Batch& batch) override {
    if (!rows_->next(batch)) return false;
    // A seed for each batch, so that skipping draws nothing.
    auto generator = at::make_generator<at::CPUGeneratorImpl>(mixed(seed_, index_++));
    const auto chosen = torch::rand({batch.x.size(0), 1}, generator, torch::TensorOptions(torch::kFloat32)) < 0.5;
    batch.x = at::where(chosen.to(batch.x.device()), batch.x.index_select(1, mirrored_.to(batch.x.device())), batch.x);
    return true;
  }
  void skip(int64_t batches) override {
    rows_->skip(batches);
    index_ += batches;
  }

 private:
  std::unique_ptr<BatchStream> rows_;
  Tensor mirrored_;
  uint64_t seed_;
  int64_t index_ = 0;
};

class Flipped : public Dataset {
 public:
  Flipped(DatasetPtr rows, const ImageRows& images) : rows_(std::move(rows)), mirrored_(images.mirrored()) {}

  int64_t rows() const override { return rows_->rows(); }
  std::unique_ptr<BatchStream> shuffled(int64_t batch_size, uint64_t seed, int64_t epoch) const override {
    return std::make_unique<FlippedStream>(rows_->shuffled(batch_size, seed, epoch), mirrored_,
                                           mixed(seed, static_cast<uint64_t>(epoch)));
  }
  std::unique_ptr<BatchStream> in_order(int64_t batch_size) const override { return rows_->in_order(batch_size); }

 private:
  DatasetPtr rows_;
  Tensor mirrored_;
};

bool few(int64_t size) { return size >= 1 && size <= 4; }

}  // namespace

int64_t ImageRows::size() const { return shape.at(0) * shape.at(1) * shape.at(2); }

std::vector<int64_t> ImageRows::stored() const {
  return layout == "nhwc" ? std::vector<int64_t>{shape[1], shape[2], shape[0]} : shape;
}

Tensor ImageRows::pixels(const Tensor& rows) const {
  if (layout == "nhwc") return rows.unflatten(-1, {shape[1], shape[2], shape[0]});
  return rows.unflatten(-1, shape).movedim(-3, -1);
}

Tensor ImageRows::mirrored() const {
  const auto index = at::arange(size());
  return layout == "nhwc" ? index.view({shape[1], shape[2], shape[0]}).flip(1).flatten()
                          : index.view(shape).flip(2).flatten();
}

std::optional<ImageRows> image_rows(const std::string& where, const std::vector<int64_t>& stored) {
  if (stored.size() == 2) return ImageRows{{1, stored[0], stored[1]}, "nchw"};
  if (stored.size() != 3) return std::nullopt;
  const bool first = few(stored.front()), last = few(stored.back());
  check(first != last, where, ": images of ", stored[0], " x ", stored[1], " x ", stored[2],
        first ? " may have their channels first or last" : " have no dimension of 1 to 4 channels",
        "; say which with --image C,H,W and --layout nchw or nhwc");
  if (last) return ImageRows{{stored[2], stored[0], stored[1]}, "nhwc"};
  return ImageRows{stored, "nchw"};
}

DatasetPtr flipped(DatasetPtr rows, const ImageRows& images) {
  return std::make_shared<Flipped>(std::move(rows), images);
}

}  // namespace diffeo
