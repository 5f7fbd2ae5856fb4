#include <iostream>
#include <optional>

#include "diffeo/apps/command.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/signals.h"
#include "diffeo/apps/tables.h"
#include "diffeo/apps/text.h"
#include "diffeo/data/image_rows.h"
#include "diffeo/flows/energy.h"
#include "diffeo/flows/model.h"
#include "diffeo/samplers/annealed_langevin.h"

namespace diffeo::apps {
namespace {

struct Wishes {
  std::string model, output, context, context_object;
  std::vector<double> context_row;
  int64_t count = 1, batch_size = 16384, langevin = 0;
  double first_step = LangevinOptions{}.first_step, last_step = LangevinOptions{}.last_step;
};

/// Where the contexts of the samples come from: nowhere, one row, or a table of M rows with `count` samples for each.
class Contexts {
 public:
  Contexts(const Wishes& wishes, const ModelFile& model, const Flow& flow)
      : count_(wishes.count), options_(flow.tensor_options()) {
    const auto size = flow.context_size();
    if (size == 0) {
      check(wishes.context.empty() && wishes.context_row.empty(), wishes.model, ": this model takes no context");
      return;
    }
    check(wishes.context.empty() != wishes.context_row.empty(), wishes.model, ": this model needs a context of ", size,
          " values (", c10::Join(", ", names(model.context_columns)), "); give --context-row or --context");
    if (!wishes.context_row.empty()) {
      check(static_cast<int64_t>(wishes.context_row.size()) == size, "--context-row: expected ", size, " values, got ",
            wishes.context_row.size());
      row_ = torch::tensor(wishes.context_row, torch::kFloat64).to(options_).view({1, -1});
      return;
    }
    source_ = {wishes.context, object_in(wishes.context, wishes.context_object, {"/context", "/test/context"}), {}};
    const auto info = table_info(source_);
    source_.columns = names_of(model.context_columns, info.columns);
    rows_ = info.rows;
  }

  bool from_table() const { return rows_ >= 0; }
  int64_t samples() const { return from_table() ? rows_ * count_ : count_; }

  /// Contexts of the samples [begin, end): (n, C), (1, C) or undefined.
  Tensor of(int64_t begin, int64_t end) const {
    if (!from_table()) return row_;
    const auto first = begin / count_, last = (end - 1) / count_ + 1;
    const auto rows = read_table(source_, c10::typeMetaToScalarType(options_.dtype()), first, last).values;
    return rows.index_select(0, torch::arange(begin, end).div(count_, "floor") - first).to(options_.device());
  }

 private:
  static std::vector<std::string> names(const std::vector<Column>& columns) {
    std::vector<std::string> names;
    for (const auto& column : columns) names.push_back(column.name);
    return names;
  }

  int64_t count_, rows_ = -1;
  torch::TensorOptions options_;
  TableSource source_;
  Tensor row_;
};

/// Columns of the samples: those of the training data.
std::vector<Column> columns_of(const ModelFile& model, const Flow& flow) {
  return columns_for(flow.space().size(), model.columns);
}

/// 1 for each column that was dequantised in training, whose samples are rounded down again; undefined if there is
/// none.
Tensor rounded_columns(const ModelFile& model) {
  const auto noisy = dequantized_columns(model);
  if (noisy.empty()) return {};
  auto mask = torch::zeros({static_cast<int64_t>(model.columns.size())}, torch::kBool);
  mask.index_fill_(0, torch::tensor(noisy), true);
  return mask;
}

/// n points by Langevin steps on the energy, taken after the layers that learn nothing, from normal noise.
Tensor by_langevin(Energy& energy, const Wishes& wishes, int64_t n) {
  auto shape = energy.space().event;
  shape.insert(shape.begin(), n);
  const auto x =
      annealed_langevin(energy, torch::randn(shape, energy.flow()->tensor_options()),
                        {.steps = wishes.langevin, .first_step = wishes.first_step, .last_step = wishes.last_step});
  return energy.leave(x);
}

int run(const Command& command, const Wishes& wishes) {
  check(wishes.langevin >= 0, "--langevin: expected 1 step or more, got ", wishes.langevin);
  check(wishes.count > 0, "-n: expected 1 or more, got ", wishes.count);
  check(wishes.batch_size > 0, "--batch-size: expected 1 or more, got ", wishes.batch_size);
  check_writable(wishes.output);
  const auto model = read_model(wishes.model);
  const auto flow = flow_from(model, wishes.model);
  const auto dtype = command.dtype(c10::typeMetaToScalarType(flow->tensor_options().dtype()));
  flow->to(command.device(), dtype);
  check(wishes.langevin == 0 || flow->context_size() == 0, "--langevin: is only for models without a context");
  const Contexts contexts(wishes, model, *flow);
  std::optional<Energy> energy;
  if (wishes.langevin > 0) energy.emplace(flow, fixed_layers(*flow));
  const auto rounded = rounded_columns(model);

  TableWriter writer(wishes.output);
  writer.begin("/x", columns_of(model, *flow), dtype);
  writer.attribute("/x", "model", wishes.model);
  write_image_shape(writer, "/x", model, wishes.model);
  writer.attribute("/x", "seed", std::to_string(command.common().seed));
  torch::NoGradGuard no_grad;
  int64_t broken = 0;
  const auto in_pieces = [&](auto&& body) {
    for (int64_t begin = 0; begin < contexts.samples(); begin += wishes.batch_size) {
      stop_if_interrupted();
      body(begin, std::min(contexts.samples(), begin + wishes.batch_size));
    }
  };
  in_pieces([&](int64_t begin, int64_t end) {
    auto x =
        energy ? by_langevin(*energy, wishes, end - begin) : flow->draw({end - begin}, contexts.of(begin, end)).value;
    x = x.cpu().flatten(1);
    if (rounded.defined()) x = torch::where(rounded, x.floor(), x);
    broken += x.isfinite().all(1).logical_not().sum().item<int64_t>();
    writer.append(x);
  });
  if (contexts.from_table()) {
    writer.begin("/context", model.context_columns, dtype);
    in_pieces([&](int64_t begin, int64_t end) { writer.append(contexts.of(begin, end).cpu()); });
  }
  writer.finish();
  if (broken > 0)
    warn("sample", c10::str(broken, " of the samples have values that are not finite; --dtype float64 may help"));
  std::cout << wishes.output << ":/x  " << grouped(contexts.samples()) << " samples x " << flow->space().size()
            << (flow->space().size() == 1 ? " column\n" : " columns\n");
  return fine;
}

}  // namespace

int sample(const Arguments& arguments) {
  Wishes wishes;
  Command command(
      "sample", "draw new rows from a model",
      "MODEL.h5 -n COUNT -o SAMPLES.h5 [--context-row A,B | --context TABLE.h5]",
      {"diffeo sample model.h5 -n 100000 -o samples.h5 --seed 1",
       "diffeo sample model.h5 -n 1000 --context-row 0.5,23.1 -o samples.h5     # all for one context",
       "diffeo sample model.h5 -n 10 --context contexts.h5 -o samples.h5        # ten for each row of a table"});
  command.argument("model", wishes.model, "model file");
  command.option("count,n", wishes.count, "samples to draw; with a table of contexts, for each of its rows");
  command.option("output,o", wishes.output, "HDF5 file to write: /x, with names and units of the training data",
                 "FILE");
  command.option("context_row", wishes.context_row, "one context for all samples");
  command.option("context", wishes.context, "HDF5 file with contexts; they are written beside the samples, as /context",
                 "FILE");
  command.option("context_object", wishes.context_object,
                 "object of the contexts in that file; default: /context or the only table", "PATH");
  command.option("langevin", wishes.langevin,
                 "instead of the inverse, draw by this many Langevin steps on the energy; 0: by the inverse", "STEPS");
  command.option("first_step", wishes.first_step, "size of the first Langevin step, for points of the scale of 1");
  command.option("last_step", wishes.last_step, "size of the last one; samples are off by about this much");
  command.option("batch_size", wishes.batch_size, "samples at a time; a part of what a seed means");
  if (!command.parse(arguments)) return fine;
  command.require("output", "-o samples.h5");
  return run(command, wishes);
}

}  // namespace diffeo::apps
