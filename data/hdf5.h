#pragma once

// HDF5 behind handles that close themselves: for the sources of data/ only. hdf5*.cpp alone see HDF5's own header; each
// C function that we use is called in one place there, under one lock (Debian's HDF5 is not thread-safe), with HDF5's
// own printing of errors switched off for the time of the call. Every failure is an Error that names file and object
// and gives HDF5's reason.

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "diffeo/layers/base/options.h"

namespace diffeo::hdf5 {

using Shape = std::vector<int64_t>;

/// Owns one of HDF5's identifiers.
class Handle {
 public:
  Handle() = default;
  explicit Handle(int64_t id) : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  Handle& operator=(Handle&& other) noexcept;
  ~Handle();
  int64_t get() const { return id_; }
  /// Closes now. False if HDF5 says that it could not (data may be lost).
  bool close();

 private:
  int64_t id_ = -1;
};

enum class Kind {
  integer,
  floating,
  enumeration,
  boolean,
  bitfield,
  compound,
  array,
  string,
  variable,
  reference,
  other
};

struct Member;

/// A stored type, as far as tables need to know it.
struct Type {
  Kind kind = Kind::other;
  int64_t bytes = 0, bits = 0;
  int64_t exponent_bits = 0;  ///< of a floating-point number
  bool is_signed = false, big_endian = false;
  Shape shape;                  ///< of an array
  std::vector<Member> members;  ///< of a compound; one without a name, the element, of an array

  bool numeric() const;      ///< a single number, or a truth value
  bool discrete() const;     ///< a number that is not a floating-point one
  std::string name() const;  ///< "float32", "int64 (big endian)", "string", ...
  /// The tensor type that holds exactly these values; none for what tensors do not know.
  std::optional<at::ScalarType> scalar_type() const;
};

struct Member {
  std::string name;
  Type type;
};

struct Filter {
  int id = 0;
  std::string name;
  bool available = false;
};

/// Where the values of a dataset lie.
struct Storage {
  Shape chunk;  ///< empty unless it is chunked
  std::vector<Filter> filters;
  std::vector<std::pair<std::string, std::string>> sources;  ///< file and object of each part of a virtual dataset
  int64_t bytes = 0;                                         ///< in the file
  bool in_this_file = true;                                  ///< neither virtual nor in external raw files
};

enum class LinkKind { hard, soft, external, other };

struct Link {
  std::string name;
  LinkKind kind = LinkKind::hard;
  std::string target;  ///< of a soft or external one, in words
};

/// What to read of a dataset: a block, and which single numbers of a compound type, as what.
struct Selection {
  Shape begin, count;        ///< of the dataset's own dimensions
  std::vector<bool> leaves;  ///< which numbers of a compound, arrays as one, in depth-first order; empty: all
  at::ScalarType element = at::kDouble;  ///< what each number becomes
};

/// How a new dataset is stored.
struct Creation {
  Shape shape;
  bool growing = false;  ///< along the first dimension: chunked
  Shape chunk;           ///< empty for contiguous storage
  int deflate = 0;       ///< level, with the shuffle filter before it; 0 for none
};

/// An open group or dataset.
class Object {
 public:
  Object(Handle id, std::string file, std::string path);

  const std::string& file() const { return file_; }
  const std::string& path() const { return path_; }
  std::string where() const { return file_ + ":" + path_; }  ///< as errors name it
  bool is_group() const;
  bool is_dataset() const;
  /// The same for two ways to one object while both are open.
  std::pair<uint64_t, uint64_t> identity() const;

  // Of groups.
  std::vector<Link> links() const;          ///< in order of creation where it was recorded, else by name
  bool has(const std::string& path) const;  ///< whether every step of a path leads to something
  Object open(const std::string& path) const;
  /// Opens a group, making it and those on the way to it where they are missing.
  Object make_group(const std::string& path);
  Object make_dataset(const std::string& path, at::ScalarType element, const Creation& creation);
  /// A scalar dataset of one string, or a list of them.
  void write_string(const std::string& path, const std::string& text);
  void write_strings(const std::string& path, const std::vector<std::string>& texts);

  // Of datasets.
  Type type() const;
  std::optional<Shape> shape() const;  ///< none for a null space; empty for a scalar
  Storage storage() const;
  void read(const Selection& selection, void* out) const;
  std::vector<std::string> strings() const;  ///< all values of a dataset of strings
  void extend(int64_t rows);
  void write(at::ScalarType element, const Shape& begin, const Shape& count, const void* values);

  // Attributes of either.
  std::vector<std::string> attributes() const;
  /// A string, a number, or a list of them; null if there is none of this name or it is something else.
  Json attribute(const std::string& name) const;
  void set_attribute(const std::string& name, const Json& value);

 private:
  Handle id_;
  std::string file_, path_;
};

/// The root group of an existing file.
Object open_file(const std::string& path);

/// A file being written.
class NewFile {
 public:
  /// `checked_metadata` asks for the newest format, in which metadata carry checksums; else the most portable one.
  NewFile(const std::string& path, const std::string& shown_as, int64_t user_block, bool checked_metadata);
  Object root() const;
  /// Writes everything out and closes. All objects of it must be closed before.
  void close();

 private:
  Handle id_;
  std::string shown_as_;
};

/// Text as valid UTF-8: what is not is taken for Latin-1.
std::string valid_utf8(std::string text);

}  // namespace diffeo::hdf5
