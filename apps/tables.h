#pragma once

#include "diffeo/data/model_file.h"
#include "diffeo/data/table.h"

namespace diffeo::apps {

/// The object of a file to read: `given` if the user names one, else the first of `preferred` that is there, else the
/// only table. Throws Error that names what there is if the choice is not clear.
std::string object_in(const std::string& file, const std::string& given, const std::vector<std::string>& preferred);

/// How to ask a table with columns `there` for `wanted`: by name; or by position where the table has no names of its
/// own and as many columns.
std::vector<std::string> names_of(const std::vector<Column>& wanted, const std::vector<Column>& there);

/// `known` and, up to `count` columns in all, plain ones that are called x0, x1, ... by their places.
std::vector<Column> columns_for(int64_t count, std::vector<Column> known = {});

/// Notes beside a table of a model's points that its rows are images, where the model's are. `where` names the model's
/// file in errors.
void write_image_shape(TableWriter& writer, const std::string& object, const ModelFile& model,
                       const std::string& where);

inline int64_t table_width(const Table& table) { return static_cast<int64_t>(table.columns.size()); }

}  // namespace diffeo::apps
