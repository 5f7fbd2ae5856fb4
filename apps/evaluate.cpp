#include <cmath>
#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/signals.h"
#include "diffeo/apps/tables.h"
#include "diffeo/apps/text.h"
#include "diffeo/data/dequantize.h"
#include "diffeo/data/splits.h"
#include "diffeo/data/table_stream.h"
#include "diffeo/flows/likelihood.h"
#include "diffeo/flows/model.h"

namespace diffeo::apps {
namespace {

struct Wishes {
  std::string model, data, output, x, context, split;
  int64_t batch_size = 8192, paths = 0;
};

struct Rows {
  std::string name;
  std::unique_ptr<BatchStream> stream;
  DatasetPtr kept;  ///< what the stream walks through, where it does not own it
};

/// The rows of a split of the file, found as in training.
Rows split_rows(const Wishes& wishes, const ModelFile& model, torch::Dtype dtype) {
  check_choice("--split", wishes.split, {"train", "valid", "test"});
  DataOptions options;
  if (model.metadata.contains("data"))
    options = read<DataOptions>(model.metadata["data"], wishes.model + ": metadata/data");
  options.file = wishes.data;
  if (!wishes.x.empty()) options.x = wishes.x;
  if (!wishes.context.empty()) options.context = wishes.context;
  options.columns.clear();
  for (const auto& column : model.columns) options.columns.push_back(column.name);
  const auto splits = load_splits(options, dtype);
  const auto data = wishes.split == "train" ? splits.train : wishes.split == "valid" ? splits.valid : splits.test;
  check(data && data->rows() > 0, wishes.data, ": has no ", wishes.split,
        " rows; without --split all rows are evaluated");
  return {wishes.data + ", " + wishes.split + " rows", data->in_order(wishes.batch_size), data};
}

/// The table with the context of the rows of `x`.
TableSource context_source(const Wishes& wishes, const ModelFile& model, const TableSource& x) {
  auto name = wishes.context;
  if (name.empty() && model.metadata.contains("data")) name = model.metadata["data"].value("context", std::string());
  const auto last = name.substr(name.rfind('/') + 1);
  const auto sibling = x.object.substr(0, x.object.rfind('/') + 1) + last;
  for (const auto& table : tables_in(x.file))
    if (!name.empty() && (table.object == name || table.object == sibling || table.object == "/" + name))
      return {x.file, table.object, names_of(model.context_columns, table.columns)};
  TableSource source{x.file, x.object, {}};
  for (const auto& column : model.context_columns) source.columns.push_back(column.name);
  return source;
}

/// All rows of one table of the file.
Rows table_rows(const Wishes& wishes, const ModelFile& model, torch::Dtype dtype) {
  TableSource x{wishes.data, object_in(wishes.data, wishes.x, {"/test/x", "/x"}), {}};
  x.columns = names_of(model.columns, table_info(x).columns);
  std::optional<TableSource> context;
  if (!model.context_columns.empty()) context = context_source(wishes, model, x);
  return {wishes.data + ":" + x.object, table_stream(x, context, wishes.batch_size, dtype), nullptr};
}

/// Begins an object with one value for each row.
void begin_column(TableWriter& writer, const Wishes& wishes, const Rows& rows, const Column& column,
                  torch::Dtype dtype) {
  writer.begin("/" + column.name, {column}, dtype, /*flat=*/true);
  writer.attribute("/" + column.name, "model", wishes.model);
  writer.attribute("/" + column.name, "data", rows.name);
}

void print_rows(const Rows& rows, int64_t count, int64_t features) {
  check(count > 0, rows.name, ": has no rows to evaluate");
  std::cout << rows.name << ": " << grouped(count) << " rows x " << features
            << (features == 1 ? " column\n" : " columns\n");
}

void print_impossible(const LogLikelihoods& all) {
  if (all.impossible() > 0)
    std::cout << "impossible rows     " << grouped(all.impossible()) << " (outside of the support of the model)\n";
}

/// The log-likelihood of each row under a flow of full dimension.
int in_space(const Wishes& wishes, Flow& flow, Rows& rows, torch::Dtype dtype) {
  std::optional<TableWriter> writer;
  if (!wishes.output.empty()) {
    writer.emplace(wishes.output);
    begin_column(*writer, wishes, rows, {.name = "log_prob", .unit = "nats", .discrete = false}, dtype);
  }
  LogLikelihoods all;
  std::vector<Tensor> kept;
  each_log_prob(
      flow, *rows.stream,
      [&](const Tensor& log_prob, const Batch& batch) {
        stop_if_interrupted();
        all.add(log_prob, batch.weight);
        if (!writer) return;
        writer->append(log_prob);
        kept.push_back(log_prob);
      },
      wishes.paths);
  const auto features = flow.space().size();
  print_rows(rows, all.rows(), features);
  if (writer) {
    writer->begin("/bits_per_dimension", {{.name = "bits_per_dimension", .unit = "bits", .discrete = false}}, dtype,
                  /*flat=*/true);
    for (const auto& log_prob : kept) writer->append(log_prob / (-std::log(2.0) * static_cast<double>(features)));
    writer->finish();
  }
  std::cout << (flow.layers()->traits().random ? "log-likelihood from " : "log-likelihood      ")
            << number(all.mean(), 7) << " +- " << number(all.standard_error(), 3) << " nats (mean, standard error)\n"
            << "bits per dimension  " << number(all.bits_per_dimension(features), 7) << '\n';
  print_impossible(all);
  if (writer) std::cout << "written             " << wishes.output << ":/log_prob and /bits_per_dimension\n";
  return fine;
}

/// The density of each row's projection on the manifold of an injective flow, and the row's distance to it.
int on_manifold(const Wishes& wishes, const ModelFile& model, Flow& flow, Rows& rows, torch::Dtype dtype) {
  std::optional<TableWriter> writer;
  if (!wishes.output.empty()) {
    writer.emplace(wishes.output);
    writer->begin("/projection", model.columns, dtype);
    writer->attribute("/projection", "model", wishes.model);
    writer->attribute("/projection", "data", rows.name);
    write_image_shape(*writer, "/projection", model, wishes.model);
  }
  ManifoldFit all;
  std::vector<Tensor> log_probs, distances;
  each_projection(flow, *rows.stream, [&](const Projection& projection, const Batch& batch) {
    stop_if_interrupted();
    all.add(projection, batch);
    if (!writer) return;
    writer->append(projection.value.flatten(1));
    log_probs.push_back(projection.log_prob);
    distances.push_back(projection.distance);
  });
  const auto& likelihoods = all.log_likelihoods();
  const auto features = flow.space().size(), latent = flow.base()->space().size();
  print_rows(rows, likelihoods.rows(), features);
  std::cout << "log-likelihood      " << number(likelihoods.mean(), 7) << " +- "
            << number(likelihoods.standard_error(), 3) << " nats on the manifold of " << latent
            << (latent == 1 ? " dimension" : " dimensions") << ", of the rows' projections\n"
            << "reconstruction      " << number(all.reconstruction_error(), 5)
            << " (mean squared distance of a row to its projection)\n"
            << "distance            " << number(all.distance(), 5) << " (mean, in the units of the data)\n";
  print_impossible(likelihoods);
  if (!writer) return fine;
  begin_column(*writer, wishes, rows, {.name = "log_prob", .unit = "nats", .discrete = false}, dtype);
  for (const auto& values : log_probs) writer->append(values);
  begin_column(*writer, wishes, rows, {.name = "distance", .unit = "", .discrete = false}, dtype);
  for (const auto& values : distances) writer->append(values);
  writer->finish();
  std::cout << "written             " << wishes.output << ":/projection, /log_prob and /distance\n";
  return fine;
}

int run(const Command& command, const Wishes& wishes) {
  check(wishes.paths >= 0, "--paths: expected 0 or more, got ", wishes.paths);
  if (!wishes.output.empty()) check_writable(wishes.output);
  const auto model = read_model(wishes.model);
  const auto flow = flow_from(model, wishes.model);
  const auto dtype = command.dtype(c10::typeMetaToScalarType(flow->tensor_options().dtype()));
  flow->to(command.device(), dtype);
  const bool random = flow->layers()->traits().random;
  check(wishes.paths > 0 || !random, wishes.model,
        ": this flow has random layers and no log-likelihood; --paths 100 gives a lower bound");
  check(wishes.paths == 0 || (random && !flow->injective()), "--paths: ", wishes.model, " holds ",
        flow->injective() ? "an injective flow" : "a flow without random layers",
        ", whose log-likelihood is no average over paths; leave it out");
  check(wishes.context.empty() || flow->context_size() > 0, "--context: ", wishes.model, " takes no context");

  auto rows = wishes.split.empty() ? table_rows(wishes, model, dtype) : split_rows(wishes, model, dtype);
  if (const auto noisy = dequantized_columns(model); !noisy.empty())
    rows.stream = dequantized(std::move(rows.stream), noisy, command.common().seed);

  return flow->injective() ? on_manifold(wishes, model, *flow, rows, dtype) : in_space(wishes, *flow, rows, dtype);
}

}  // namespace

int evaluate(const Arguments& arguments) {
  Wishes wishes;
  Command command("evaluate", "log-likelihood of each row of a table", "MODEL.h5 DATA.h5 [-o OUT.h5]",
                  {"diffeo evaluate model.h5 moons.h5                     # the stored test rows, or the only table",
                   "diffeo evaluate model.h5 moons.h5 -o test.h5          # each row's log-likelihood, /log_prob, and "
                   "bits per dimension",
                   "diffeo evaluate model.h5 events.h5 --split valid      # the same rows that training validated on",
                   "diffeo evaluate model.h5 other.h5 --x /simulated --dtype float64"});
  command.argument("model", wishes.model, "model file");
  command.argument("data", wishes.data, "HDF5 file with the rows; columns are found by name");
  command.option("output,o", wishes.output,
                 "file to write each row's log-likelihood (nats) and bits per dimension to; of an injective flow the "
                 "projections and distances too",
                 "FILE");
  command.option("x", wishes.x, "object of the rows; default: /test/x, /x, or the only table", "PATH");
  command.option("context", wishes.context, "object of the context, or columns of the rows; default: as in training");
  command.option("split", wishes.split, "train, valid or test: the rows that training took for this", "NAME");
  command.option("batch_size", wishes.batch_size, "rows at a time");
  command.option("paths", wishes.paths,
                 "for flows with random layers: the lower bound of the log-likelihood by this many paths a row");
  if (!command.parse(arguments)) return fine;
  return run(command, wishes);
}

}  // namespace diffeo::apps
