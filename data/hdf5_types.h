#pragma once

// HDF5's types, in files and in memory. For the sources hdf5*.cpp only. Every function throws Error where HDF5 refuses,
// beginning with `where`, the file and object.

#include "diffeo/data/hdf5_call.h"

namespace diffeo::hdf5 {

/// What sort of type it is.
Kind kind_of(const std::string& where, hid_t type);
/// Bytes of one value of a type.
int64_t size_of(hid_t type);
/// HDF5's sizes are unsigned; a hostile one must not turn negative.
int64_t positive(const std::string& where, hsize_t size);
/// A stored type in our terms; `depth`: inside of how many others it stands.
Type describe_type(const std::string& where, hid_t id, int depth = 0);
/// The type of one number of a tensor, in memory and in files that we write.
Handle element_type(at::ScalarType element);
/// How a stored type lies in memory when its chosen numbers become `selection.element`; an empty handle if none is
/// chosen. `leaf`: how many numbers were looked at before, and then after it.
Handle memory_type(const std::string& where, hid_t stored, const Selection& selection, size_t& leaf);
/// A string type for memory that fits a stored one.
Handle string_memory(const std::string& where, hid_t stored, bool variable);
/// Whether strings of this type have lengths of their own.
bool is_variable_string(const std::string& where, hid_t type);
/// A string type for files, as h5py makes them.
Handle utf8_type();

}  // namespace diffeo::hdf5
