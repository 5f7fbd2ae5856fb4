#pragma once

#include "diffeo/data/dataset.h"

namespace diffeo {

/// Rows in memory whose labels (n), integers, are the numbers of their groups, in batches that hold groups whole. An
/// epoch has as many batches as one of single rows, of nearly equal sizes as far as the groups allow; which groups come
/// together is drawn anew each epoch. Throws Error for labels that are missing or no integers; the streams throw it
/// where a batch would be left without a group.
DatasetPtr in_whole_groups(Batch rows);

}  // namespace diffeo
