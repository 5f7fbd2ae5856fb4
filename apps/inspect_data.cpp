#include <iostream>

#include "diffeo/apps/inspect.h"
#include "diffeo/apps/signals.h"
#include "diffeo/apps/text.h"
#include "diffeo/data/summary.h"

namespace diffeo::apps {
namespace {

constexpr int64_t values_to_read = 50'000'000;  // a few seconds
constexpr int64_t columns_to_show = 40;

void describe_table(const std::string& file, const TableInfo& info, bool all) {
  const auto features = static_cast<int64_t>(info.columns.size());
  std::cout << '\n'
            << info.object << ": " << grouped(info.rows) << " rows x " << grouped(features)
            << (features == 1 ? " column, " : " columns, ") << info.dtype << " (" << info.kind << ")\n";
  const auto shown = all ? features : std::min(features, columns_to_show);
  const auto rows =
      all ? info.rows : std::min(info.rows, std::max<int64_t>(1, values_to_read / std::max<int64_t>(1, shown)));
  TableSource source{file, info.object, {}};
  if (shown < features) source.columns = {"0:" + std::to_string(shown)};
  const auto summaries = summarize(source, rows);
  Columns table("lllrrrrrl");
  table.row({"column", "unit", "kind", "missing", "min", "max", "mean", "std", "histogram (central 99 %)"});
  for (int64_t i = 0; i < shown; ++i) {
    const auto& column = info.columns[i];
    const auto& summary = summaries[i];
    const bool constant = summary.smallest == summary.largest;
    table.row({column.name, column.unit,
               constant          ? "constant"
               : column.discrete ? "integer"
               : summary.whole   ? "whole"
                                 : "real",
               grouped(summary.missing), number(summary.smallest), number(summary.largest), number(summary.mean),
               number(summary.deviation), histogram(summary.sample, 24)});
  }
  table.print();
  if (shown < features) std::cout << "  ... and " << grouped(features - shown) << " more columns (--all shows them)\n";
  if (rows < info.rows) std::cout << "  from the first " << grouped(rows) << " rows (--all reads them all)\n";
}

}  // namespace

void describe_data(const std::string& file, const std::string& object, bool all) {
  const auto tables = object.empty() ? tables_in(file) : std::vector{table_info({file, object, {}})};
  std::cout << file << ": HDF5 file with " << tables.size() << (tables.size() == 1 ? " table" : " tables")
            << " of numbers" << (object.empty() ? "" : " chosen") << '\n';
  for (const auto& table : tables) {
    stop_if_interrupted();
    describe_table(file, table, all);
  }
}

}  // namespace diffeo::apps
