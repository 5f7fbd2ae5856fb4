#include "diffeo/data/hdf5_types.h"

namespace diffeo::hdf5 {
namespace {

constexpr int deepest_nesting = 16;

Handle super_type(const std::string& where, hid_t type) {
  return made(where, "cannot read its type", [&] { return H5Tget_super(type); });
}

std::string member_name(const std::string& where, hid_t type, unsigned index) {
  Session session;
  char* const name = H5Tget_member_name(type, index);
  if (!name) throw Error(c10::str(where, ": cannot read its type: ", reason()));
  std::string copy = name;
  H5free_memory(name);
  return valid_utf8(copy);
}

int members_of(const std::string& where, hid_t type) {
  return call(where, "cannot read its type", [&] { return H5Tget_nmembers(type); });
}

Handle member_type(const std::string& where, hid_t type, unsigned index) {
  return made(where, "cannot read its type", [&] { return H5Tget_member_type(type, index); });
}

std::vector<hsize_t> array_dims(const std::string& where, hid_t type) {
  const auto rank = call(where, "cannot read its type", [&] { return H5Tget_array_ndims(type); });
  std::vector<hsize_t> dims(rank);
  call(where, "cannot read its type", [&] { return H5Tget_array_dims2(type, dims.data()); });
  return dims;
}

bool is_boolean(const std::string& where, hid_t type) {
  if (members_of(where, type) != 2) return false;
  const auto first = member_name(where, type, 0), second = member_name(where, type, 1);
  return (first == "FALSE" && second == "TRUE") || (first == "TRUE" && second == "FALSE");
}

Handle copied(hid_t type) {
  return made("HDF5", "cannot copy a type", [&] { return H5Tcopy(type); });
}

/// An IEEE-like number of 16 bits.
Handle small_float(size_t exponent_bits) {
  auto type = copied(H5T_IEEE_F32LE);
  call("HDF5", "cannot make a type", [&] {
    const auto mantissa_bits = 15 - exponent_bits;
    if (H5Tset_fields(type.get(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits) < 0) return -1;
    if (H5Tset_size(type.get(), 2) < 0) return -1;
    return H5Tset_ebias(type.get(), (size_t{1} << (exponent_bits - 1)) - 1);
  });
  return type;
}

/// Truth values as h5py writes them.
Handle boolean_type() {
  auto type = made("HDF5", "cannot make a type", [] { return H5Tenum_create(H5T_NATIVE_INT8); });
  for (const int8_t value : {0, 1})
    call("HDF5", "cannot make a type", [&] { return H5Tenum_insert(type.get(), value ? "TRUE" : "FALSE", &value); });
  return type;
}

bool single_number(Kind kind) {
  return kind == Kind::integer || kind == Kind::floating || kind == Kind::enumeration || kind == Kind::bitfield;
}

}  // namespace

Kind kind_of(const std::string& where, hid_t type) {
  switch (call(where, "cannot read its type", [&] { return static_cast<int>(H5Tget_class(type)); })) {
    case H5T_INTEGER:
      return Kind::integer;
    case H5T_FLOAT:
      return Kind::floating;
    case H5T_ENUM:
      return Kind::enumeration;
    case H5T_BITFIELD:
      return Kind::bitfield;
    case H5T_COMPOUND:
      return Kind::compound;
    case H5T_ARRAY:
      return Kind::array;
    case H5T_STRING:
      return Kind::string;
    case H5T_VLEN:
      return Kind::variable;
    case H5T_REFERENCE:
      return Kind::reference;
    default:
      return Kind::other;
  }
}

int64_t size_of(hid_t type) {
  Session session;
  return static_cast<int64_t>(H5Tget_size(type));
}

int64_t positive(const std::string& where, hsize_t size) {
  check(size <= static_cast<hsize_t>(std::numeric_limits<int64_t>::max()), where, ": absurd size ", size);
  return static_cast<int64_t>(size);
}

Type describe_type(const std::string& where, hid_t id, int depth) {
  check(depth < deepest_nesting, where, ": its type is nested more than ", deepest_nesting, " deep");
  Type type;
  type.kind = kind_of(where, id);
  type.bytes = size_of(id);
  switch (type.kind) {
    case Kind::integer:
    case Kind::floating:
    case Kind::bitfield: {
      Session session;
      type.bits = static_cast<int64_t>(H5Tget_precision(id));
      type.is_signed = type.kind == Kind::floating || (type.kind == Kind::integer && H5Tget_sign(id) == H5T_SGN_2);
      type.big_endian = type.bytes > 1 && H5Tget_order(id) == H5T_ORDER_BE;
      size_t sign, exponent, exponent_bits = 0, mantissa, mantissa_bits;
      if (type.kind == Kind::floating) H5Tget_fields(id, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits);
      type.exponent_bits = static_cast<int64_t>(exponent_bits);
      break;
    }
    case Kind::enumeration: {
      auto base = describe_type(where, super_type(where, id).get(), depth + 1);
      if (is_boolean(where, id)) type.kind = Kind::boolean;
      type.bits = base.bits, type.is_signed = base.is_signed, type.big_endian = base.big_endian;
      break;
    }
    case Kind::array:
      for (const auto size : array_dims(where, id)) type.shape.push_back(positive(where, size));
      type.members.push_back({"", describe_type(where, super_type(where, id).get(), depth + 1)});
      break;
    case Kind::compound:
      for (int i = 0; i < members_of(where, id); ++i)
        type.members.push_back(
            {member_name(where, id, i), describe_type(where, member_type(where, id, i).get(), depth + 1)});
      break;
    default:
      break;
  }
  return type;
}

Handle element_type(at::ScalarType element) {
  switch (element) {
    case at::kDouble:
      return copied(H5T_NATIVE_DOUBLE);
    case at::kFloat:
      return copied(H5T_NATIVE_FLOAT);
    case at::kHalf:
      return small_float(5);
    case at::kBFloat16:
      return small_float(8);
    case at::kLong:
      return copied(H5T_NATIVE_INT64);
    case at::kInt:
      return copied(H5T_NATIVE_INT32);
    case at::kShort:
      return copied(H5T_NATIVE_INT16);
    case at::kChar:
      return copied(H5T_NATIVE_INT8);
    case at::kByte:
      return copied(H5T_NATIVE_UINT8);
    case at::kUInt16:
      return copied(H5T_NATIVE_UINT16);
    case at::kUInt32:
      return copied(H5T_NATIVE_UINT32);
    case at::kUInt64:
      return copied(H5T_NATIVE_UINT64);
    case at::kBool:
      return boolean_type();
    default:
      throw Error(c10::str("HDF5 files hold no tensors of ", element));
  }
}

Handle memory_type(const std::string& where, hid_t stored, const Selection& selection, size_t& leaf) {
  const auto chosen = [&] { return selection.leaves.empty() || selection.leaves.at(leaf++); };
  const auto kind = kind_of(where, stored);
  if (single_number(kind)) {
    if (!chosen()) return {};
    return kind == Kind::bitfield ? copied(H5T_NATIVE_B64) : element_type(selection.element);
  }
  if (kind == Kind::array) {
    const auto base = super_type(where, stored);
    const auto base_kind = kind_of(where, base.get());
    if (!single_number(base_kind) || !chosen()) return {};
    const auto dims = array_dims(where, stored);
    const auto element = base_kind == Kind::bitfield ? copied(H5T_NATIVE_B64) : element_type(selection.element);
    return made(where, "cannot make a type",
                [&] { return H5Tarray_create2(element.get(), static_cast<unsigned>(dims.size()), dims.data()); });
  }
  if (kind != Kind::compound) return {};
  std::vector<std::pair<unsigned, Handle>> members;
  size_t bytes = 0;
  for (int i = 0; i < members_of(where, stored); ++i) {
    auto member = memory_type(where, member_type(where, stored, i).get(), selection, leaf);
    if (member.get() < 0) continue;
    bytes += size_of(member.get());
    members.emplace_back(i, std::move(member));
  }
  if (members.empty()) return {};
  auto type = made(where, "cannot make a type", [&] { return H5Tcreate(H5T_COMPOUND, bytes); });
  size_t offset = 0;
  for (const auto& [index, member] : members) {
    Session session;
    char* const name = H5Tget_member_name(stored, index);
    const auto inserted = name ? H5Tinsert(type.get(), name, offset, member.get()) : -1;
    const auto why = inserted < 0 ? reason() : "";
    H5free_memory(name);
    check(inserted >= 0, where, ": cannot read its type: ", why);
    offset += size_of(member.get());
  }
  return type;
}

Handle string_memory(const std::string& where, hid_t stored, bool variable) {
  auto type = copied(H5T_C_S1);
  call(where, "cannot make a type", [&] {
    if (H5Tset_size(type.get(), variable ? H5T_VARIABLE : H5Tget_size(stored)) < 0) return -1;
    if (H5Tset_cset(type.get(), H5Tget_cset(stored)) < 0) return -1;
    return variable ? 0 : H5Tset_strpad(type.get(), H5Tget_strpad(stored));
  });
  return type;
}

bool is_variable_string(const std::string& where, hid_t type) {
  return call(where, "cannot read its type", [&] { return H5Tis_variable_str(type); }) > 0;
}

Handle utf8_type() {
  auto type = copied(H5T_C_S1);
  call("HDF5", "cannot make a type",
       [&] { return H5Tset_size(type.get(), H5T_VARIABLE) < 0 ? -1 : H5Tset_cset(type.get(), H5T_CSET_UTF8); });
  return type;
}

bool Type::numeric() const {
  switch (kind) {
    case Kind::integer:
    case Kind::enumeration:
    case Kind::boolean:
    case Kind::bitfield:
      return bytes <= 8;
    case Kind::floating:
      return bytes <= 16;
    default:
      return false;
  }
}

bool Type::discrete() const { return numeric() && kind != Kind::floating; }

std::string Type::name() const {
  const std::string order = big_endian ? " (big endian)" : "";
  switch (kind) {
    case Kind::integer:
      return c10::str(is_signed ? "int" : "uint", bits, order);
    case Kind::floating:
      return c10::str(bits == 16 && exponent_bits == 8 ? "bfloat" : "float", bits, order);
    case Kind::enumeration:
      return "enumeration";
    case Kind::boolean:
      return "bool";
    case Kind::bitfield:
      return c10::str("bitfield", bits, order);
    case Kind::compound:
      return "compound";
    case Kind::array:
      return c10::str(members.at(0).type.name(), "[", c10::Join(", ", shape), "]");
    case Kind::string:
      return "string";
    case Kind::variable:
      return "lists of varying length";
    case Kind::reference:
      return "references";
    case Kind::other:
      break;
  }
  return "opaque values";
}

std::optional<at::ScalarType> Type::scalar_type() const {
  const bool whole = bits == 8 * bytes;
  if (kind == Kind::boolean && bytes == 1) return at::kBool;
  if (kind == Kind::floating && whole) {
    if (bytes == 8) return at::kDouble;
    if (bytes == 4) return at::kFloat;
    if (bytes == 2) return exponent_bits == 8 ? at::kBFloat16 : at::kHalf;
  }
  if (kind == Kind::integer && whole) {
    if (bytes == 8) return is_signed ? at::kLong : at::kUInt64;
    if (bytes == 4) return is_signed ? at::kInt : at::kUInt32;
    if (bytes == 2) return is_signed ? at::kShort : at::kUInt16;
    if (bytes == 1) return is_signed ? at::kChar : at::kByte;
  }
  return std::nullopt;
}

}  // namespace diffeo::hdf5
