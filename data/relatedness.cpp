#include "diffeo/data/relatedness.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include "diffeo/data/hdf5.h"

namespace diffeo {
namespace {

constexpr double asymmetry = 1e-4;  ///< of the largest entry: what float32 and a program's printing leave

Tensor column(const hdf5::Object& group, const std::string& name, torch::Dtype dtype) {
  check(group.has(name), group.where(), ": a sparse matrix is a group with data, indices and indptr; there is no ",
        name);
  return read_table({group.file(), group.path() + "/" + name, {}}, dtype).values.flatten();
}

/// Compressed sparse rows as a dense matrix.
Tensor sparse_matrix(const hdf5::Object& group) {
  const auto values = column(group, "data", torch::kFloat64), indices = column(group, "indices", torch::kInt64),
             ends = column(group, "indptr", torch::kInt64);
  const auto where = group.where();
  check(values.numel() == indices.numel(), where, ": has ", values.numel(), " values in data, but ", indices.numel(),
        " indices");
  check(ends.numel() > 1, where, ": indptr is empty");
  const auto rows = ends.numel() - 1;
  auto columns = indices.numel() > 0 ? indices.max().item<int64_t>() + 1 : 1;
  if (group.has("shape")) {
    const auto shape = column(group, "shape", torch::kInt64);
    check(shape.numel() == 2 && shape[0].item<int64_t>() == rows && shape[1].item<int64_t>() >= columns, where,
          ": shape does not fit indptr and indices");
    columns = shape[1].item<int64_t>();
  }
  check((indices >= 0).all().item<bool>(), where, ": holds a negative index");
  const auto* end = ends.data_ptr<int64_t>();
  check(end[0] == 0 && end[rows] == values.numel(), where, ": indptr does not go from 0 to ", values.numel());
  auto dense = at::zeros({rows, columns}, torch::kFloat64);
  for (int64_t row = 0; row < rows; ++row) {
    check(end[row] <= end[row + 1], where, ": indptr descends at row ", row);
    const auto count = end[row + 1] - end[row];
    if (count > 0) dense[row].index_add_(0, indices.narrow(0, end[row], count), values.narrow(0, end[row], count));
  }
  return dense;
}

void check_finite(const Tensor& matrix, const std::string& name) {
  const auto finite = at::isfinite(matrix);
  if (finite.all().item<bool>()) return;
  const auto first = finite.logical_not().flatten().to(torch::kInt64).argmax().item<int64_t>();
  throw Error(c10::str(name, ": entry (", first / matrix.size(1), ", ", first % matrix.size(1),
                       ") is missing or infinite; every entry of a relatedness must be a number"));
}

bool symmetric(const Tensor& matrix) {
  return (matrix - matrix.t()).abs().max().item<double>() <= asymmetry * matrix.abs().max().item<double>();
}

/// Whether a tall matrix looks like a relatedness matrix cut short. A factor's first rows have no reason to be
/// symmetric, but may be diagonal, where they stand for members of different families.
bool lacks_columns(const Tensor& matrix) {
  const auto square = matrix.narrow(0, 0, matrix.size(1));
  return symmetric(square) && (square - square.diag().diag()).any().item<bool>();
}

}  // namespace

Tensor Relatedness::dense() const { return matrix.defined() ? matrix : factor.matmul(factor.t()); }

TableSource file_and_object(const std::string& place) {
  const auto colon = place.rfind(":/");
  check(colon != std::string::npos && colon > 0, "'", place, "': expected FILE.h5:/OBJECT");
  return {place.substr(0, colon), place.substr(colon + 1), {}};
}

void check_relatedness(const Tensor& matrix, const std::string& name) {
  check(matrix.dim() == 2 && matrix.size(0) == matrix.size(1), name,
        ": a relatedness matrix must be square, got shape ", matrix.sizes());
  check(matrix.size(0) > 0, name, ": is empty");
  check_finite(matrix, name);
  if (symmetric(matrix)) return;
  const auto worst = (matrix - matrix.t()).abs().argmax().item<int64_t>();
  const auto row = worst / matrix.size(0), other = worst % matrix.size(0);
  throw Error(c10::str(name, ": a relatedness matrix must be symmetric, but entry (", row, ", ", other, ") is ",
                       matrix[row][other].item<double>(), " and (", other, ", ", row, ") is ",
                       matrix[other][row].item<double>()));
}

Relatedness read_relatedness(const std::string& place) {
  const auto source = file_and_object(place);
  const auto root = hdf5::open_file(source.file);
  check(root.has(source.object), place, ": there is no such object in the file");
  const auto object = root.open(source.object);
  Relatedness relatedness;
  const bool sparse = object.is_group();
  const auto values =
      sparse ? sparse_matrix(object) : read_table(source, torch::kFloat64, 0, -1, /*finite=*/false).values;
  check(values.size(0) > 0, place, ": is empty");
  check(values.size(1) <= values.size(0), place, ": is ", values.size(0), " x ", values.size(1),
        "; expected a square relatedness matrix, or a factor of it with fewer columns than rows");
  if (values.size(1) < values.size(0) || (sparse && !symmetric(values))) {
    check_finite(values, place);
    check(sparse || !lacks_columns(values), place, ": is ", values.size(0), " x ", values.size(1),
          " and its square part is symmetric, as a relatedness matrix without its last columns is; expected all of "
          "them, or a factor of the matrix");
    relatedness.factor = values;
  } else {
    check_relatedness(values, place);
    relatedness.matrix = (values + values.t()) / 2;
  }
  return relatedness;
}

}  // namespace diffeo
