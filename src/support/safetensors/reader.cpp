// SPDX-License-Identifier: Apache-2.0
#include "src/support/safetensors/reader.hpp"

#include "src/support/joined.hpp"
#include "src/support/strict_json.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace vocabpipe {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

namespace {

struct TypeName {
    StoredType type;
    std::string_view name;
    uint64_t bytes;
};

constexpr std::array<TypeName, 15> kTypes{{{StoredType::BOOL, "BOOL", 1},
                                           {StoredType::U8, "U8", 1},
                                           {StoredType::I8, "I8", 1},
                                           {StoredType::F8_E5M2, "F8_E5M2", 1},
                                           {StoredType::F8_E4M3, "F8_E4M3", 1},
                                           {StoredType::I16, "I16", 2},
                                           {StoredType::U16, "U16", 2},
                                           {StoredType::F16, "F16", 2},
                                           {StoredType::BF16, "BF16", 2},
                                           {StoredType::I32, "I32", 4},
                                           {StoredType::U32, "U32", 4},
                                           {StoredType::F32, "F32", 4},
                                           {StoredType::F64, "F64", 8},
                                           {StoredType::I64, "I64", 8},
                                           {StoredType::U64, "U64", 8}}};

constexpr size_t kMostDimensions = 16;

std::string number(uint64_t value) {
    return std::to_string(value);
}

/// a *= b, which is not 0; false beyond 64 bits.
bool multiply(uint64_t& a, uint64_t b) {
    if (a > std::numeric_limits<uint64_t>::max() / b) return false;
    a *= b;
    return true;
}

StoredTensor read_tensor(const std::string& name, const StrictJson& entry, uint64_t data_begin,
                         uint64_t data_bytes) {
    StoredTensor tensor;
    tensor.name = name;
    entry.only({"dtype", "shape", "data_offsets"});
    const std::string type = entry.at("dtype").text();
    const auto known = stored_type_from(type);
    if (!known) {
        entry.fail("dtype " + readable(type) + " is unknown; use one of " +
                   joined(kTypes, ", ", &TypeName::name));
    }
    tensor.type = *known;
    uint64_t bytes = item_size(tensor.type);
    bool fits = true;
    bool empty = false;
    for (const StrictJson& size : entry.at("shape").items(kMostDimensions)) {
        tensor.shape.push_back(size.integer(0, std::numeric_limits<int64_t>::max()));
        if (tensor.shape.back() == 0) {
            empty = true;
        } else {
            fits = fits && multiply(bytes, static_cast<uint64_t>(tensor.shape.back()));
        }
    }
    if (empty) bytes = 0;
    const std::vector<StrictJson> offsets = entry.at("data_offsets").items(2);
    if (offsets.size() != 2) entry.fail("data_offsets must be two numbers, begin and end");
    const auto offset = [&](size_t i) {
        return static_cast<uint64_t>(offsets[i].integer(0, std::numeric_limits<int64_t>::max()));
    };
    const uint64_t begin = offset(0);
    const uint64_t end = offset(1);
    if (begin > end) {
        entry.fail("data_offsets " + number(begin) + ", " + number(end) +
                   ": the end must not be before the begin; write the file again");
    }
    if (end > data_bytes) {
        entry.fail("data_offsets end at " + number(end) + ", but the file has " +
                   number(data_bytes) +
                   " bytes of data; the file is truncated; copy or download it again");
    }
    if (!fits || bytes != end - begin) {
        entry.fail("shape " + shape_text(tensor.shape) + " of " + type + " takes " +
                   (fits ? number(bytes) : "more than 2^64") + " bytes, but data_offsets cover " +
                   number(end - begin) + "; write the file again");
    }
    tensor.begin = data_begin + begin;
    tensor.end = data_begin + end;
    return tensor;
}

}  // namespace

std::string readable(const std::string& name) {
    constexpr size_t kLongest = 120;
    const bool plain = name.size() <= kLongest && std::all_of(name.begin(), name.end(), [](char c) {
                           return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
                       });
    if (plain) return name;
    return nlohmann::json(name)
        .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)
        .substr(0, kLongest);
}

std::string_view name_of(StoredType type) {
    return kTypes[static_cast<size_t>(type)].name;
}

uint64_t item_size(StoredType type) {
    return kTypes[static_cast<size_t>(type)].bytes;
}

std::optional<StoredType> stored_type_from(std::string_view name) {
    for (const TypeName& t : kTypes) {
        if (t.name == name) return t.type;
    }
    return std::nullopt;
}

std::string shape_text(const std::vector<int64_t>& shape) {
    std::string text = "[";
    for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    return text + "]";
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> head, uint64_t file_bytes,
                                           const std::string& path) {
    const auto refuse = [&](const std::string& what) { throw InputFileError(path + ": " + what); };
    if (file_bytes < 8) {
        refuse("has " + number(file_bytes) +
               " bytes, but a safetensors file begins with an 8-byte header length; copy or "
               "download it again");
    }
    uint64_t length = 0;
    std::memcpy(&length, head.data(), sizeof length);
    if (length > kMostHeaderBytes) {
        refuse("begins with a header length of " + number(length) + ", but at most " +
               number(kMostHeaderBytes) + " are allowed; it is not a safetensors file");
    }
    if (length > file_bytes - 8) {
        refuse("has a header of " + number(length) + " bytes, but only " + number(file_bytes - 8) +
               " bytes follow; the file is truncated; copy or download it again");
    }
    const std::string_view text(reinterpret_cast<const char*>(head.data()) + 8, length);
    if (!text.starts_with('{')) {
        refuse("the header does not begin with {; it is not a safetensors file");
    }
    SafetensorsHeader header;
    header.data_begin = 8 + length;
    const uint64_t data_bytes = file_bytes - header.data_begin;
    for (const auto& [name, entry] : StrictJson::parse(text, path).members()) {
        if (name == "__metadata__") {
            for (const auto& [key, value] : entry.members()) header.metadata[key] = value.text();
            continue;
        }
        header.tensors.push_back(read_tensor(name, entry, header.data_begin, data_bytes));
    }
    std::sort(header.tensors.begin(), header.tensors.end(),
              [](const StoredTensor& a, const StoredTensor& b) {
                  return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
              });
    uint64_t at = header.data_begin;
    for (const StoredTensor& tensor : header.tensors) {
        if (tensor.begin != at) {
            refuse("tensor " + readable(tensor.name) + ": begins at byte " +
                   number(tensor.begin - header.data_begin) + " of the data, " +
                   (tensor.begin < at ? "inside the previous tensor, which ends at "
                                      : "leaving a gap after ") +
                   number(at - header.data_begin) + "; write the file again");
        }
        at = tensor.end;
    }
    if (at != file_bytes) {
        refuse("has " + number(file_bytes - at) +
               " bytes after its last tensor; copy or download it again");
    }
    return header;
}

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)) {
    const InputFile file(path_);
    identity_ = file.identity();
    uint64_t length = 0;
    std::vector<std::byte> head(std::min<uint64_t>(size(), sizeof length));
    file.read(0, head);
    if (head.size() == sizeof length) {
        std::memcpy(&length, head.data(), sizeof length);
        // A header that is too long is refused without reading it.
        head.resize(8 + std::min({length, kMostHeaderBytes, size() - 8}));
        file.read(0, head);
    }
    header_ = parse_safetensors_header(head, size(), path_);
    for (const StoredTensor& tensor : header_.tensors) by_name_[tensor.name] = &tensor;
}

InputFile SafetensorsFile::open() const {
    InputFile file(path_);
    if (file.identity() == identity_) return file;
    throw InputFileError(path_ +
                         ": is no longer the same file, or its size changed; another process "
                         "changed it; copy or download it again");
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
}

}  // namespace vocabpipe
