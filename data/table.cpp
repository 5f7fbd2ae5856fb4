#include "diffeo/data/table.h"

#include "diffeo/data/table_reader.h"

namespace diffeo {

Table read_table(const TableSource& source, torch::Dtype dtype, int64_t begin, int64_t end, bool finite) {
  const TableReader reader(source);
  auto values = reader.read(begin, end < 0 ? reader.rows() : end, dtype);
  if (finite) reader.check_finite(values, begin);
  return {std::move(values), reader.columns(), reader.event_shape()};
}

TableInfo table_info(const TableSource& source) { return TableReader(source).info(); }

std::vector<TableInfo> tables_in(const std::string& file) { return find_tables(hdf5::open_file(file)).tables; }

}  // namespace diffeo
