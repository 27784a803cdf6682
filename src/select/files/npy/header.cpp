// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/npy/header.hpp"

#include "src/support/parse_number.hpp"
#include "src/support/safetensors/format.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace vocabpipe {

namespace {

constexpr std::string_view kNpyMagic("\x93NUMPY", 6);
constexpr std::string_view kConvert = "; save it as such: np.save(FILE, x.astype('<f4'))";

struct NpyTypeRow {
    NpyType type;
    std::string_view descr;
    uint64_t bytes;
};
constexpr std::array<NpyTypeRow, 6> kNpyTypes{{{NpyType::f2, "<f2", 2},
                                               {NpyType::f4, "<f4", 4},
                                               {NpyType::f8, "<f8", 8},
                                               {NpyType::i4, "<i4", 4},
                                               {NpyType::i8, "<i8", 8},
                                               {NpyType::u4, "<u4", 4}}};

const NpyTypeRow& row_of(NpyType type) {
    return *std::ranges::find(kNpyTypes, type, &NpyTypeRow::type);
}

/// The dictionary of a header: a Python literal. Accepts only the forms that NumPy writes.
class NpyDictionary {
public:
    NpyDictionary(std::string_view text, const std::string& path) : text_(text), path_(path) {
        expect('{');
        while (!take('}')) {
            const std::string_view key = quoted();
            expect(':');
            value(key);
            if (!take(',')) {
                expect('}');
                break;
            }
        }
        skip_spaces();
        if (!text_.empty()) refuse("text after the dictionary");
    }

    [[nodiscard]] NpyType type() const {
        if (!descr_) refuse("no 'descr'");
        const auto found = std::ranges::find(kNpyTypes, *descr_, &NpyTypeRow::descr);
        if (found != kNpyTypes.end()) return found->type;
        const std::string name = readable(std::string(*descr_));
        if (descr_->starts_with('>')) {
            throw InputFileError(path_ + ": has big-endian elements, " + name +
                                 std::string(kConvert));
        }
        if (descr_->starts_with("|O") || descr_->starts_with("O")) {
            throw InputFileError(path_ + ": holds Python objects, which are not read" +
                                 std::string(kConvert));
        }
        throw InputFileError(path_ + ": has elements " + name +
                             "; f2, f4, f8, i4, i8 and u4 are read" + std::string(kConvert));
    }
    [[nodiscard]] std::vector<int64_t> shape() const {
        if (!shape_) refuse("no 'shape'");
        if (!fortran_) refuse("no 'fortran_order'");
        if (*fortran_ && shape_->size() > 1) {
            throw InputFileError(path_ +
                                 ": is in Fortran order; save it in C order: np.save(FILE, "
                                 "np.ascontiguousarray(x))");
        }
        return *shape_;
    }

private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw InputFileError(path_ + ": header: " + what + "; the file is no .npy, or damaged");
    }
    void skip_spaces() {
        text_.remove_prefix(std::min(text_.find_first_not_of(" \n"), text_.size()));
    }
    bool take(char c) {
        skip_spaces();
        if (!text_.starts_with(c)) return false;
        text_.remove_prefix(1);
        return true;
    }
    void expect(char c) {
        if (!take(c)) refuse(std::string("no '") + c + "' where one is due");
    }
    std::string_view quoted() {
        skip_spaces();
        const char quote = text_.empty() ? ' ' : text_.front();
        const size_t end = quote == '\'' || quote == '"' ? text_.find(quote, 1) : std::string::npos;
        if (end == std::string::npos) refuse("no quoted text where one is due");
        const std::string_view inside = text_.substr(1, end - 1);
        text_.remove_prefix(end + 1);
        return inside;
    }
    template <typename T>
    void set(std::optional<T>& to, T value) {
        if (to) refuse("a key is given twice");
        to = std::move(value);
    }
    void value(std::string_view key) {
        if (key == "descr") {
            skip_spaces();
            if (text_.starts_with('[')) {
                throw InputFileError(path_ +
                                     ": has records of several fields; save one field: "
                                     "np.save(FILE, x['FIELD'])");
            }
            set(descr_, quoted());
        } else if (key == "fortran_order") {
            skip_spaces();
            const bool yes = text_.starts_with("True");
            if (!yes && !text_.starts_with("False")) refuse("fortran_order is no truth value");
            text_.remove_prefix(yes ? 4 : 5);
            set(fortran_, yes);
        } else if (key == "shape") {
            set(shape_, tuple());
        } else {
            refuse("unknown key '" + readable(std::string(key)) + "'");
        }
    }
    std::vector<int64_t> tuple() {
        std::vector<int64_t> lengths;
        expect('(');
        while (!take(')')) {
            skip_spaces();
            const size_t digits = std::min(text_.find_first_not_of("0123456789"), text_.size());
            const auto length = parse_number<int64_t>(text_.substr(0, digits));
            if (!length) refuse("shape has no number where one is due");
            text_.remove_prefix(digits);
            lengths.push_back(*length);
            if (!take(',')) {
                expect(')');
                break;
            }
        }
        return lengths;
    }

    std::string_view text_;
    const std::string& path_;
    std::optional<std::string_view> descr_;
    std::optional<bool> fortran_;
    std::optional<std::vector<int64_t>> shape_;
};

/// Bytes of all elements; none if no file can be that large.
std::optional<uint64_t> data_bytes(const NpyHeader& header) {
    uint64_t bytes = item_size(header.type);
    bool empty = false;
    bool huge = false;
    for (const int64_t length : header.shape) {
        empty = empty || length == 0;
        huge = huge || __builtin_mul_overflow(bytes, static_cast<uint64_t>(length), &bytes) ||
               bytes > uint64_t{INT64_MAX};
    }
    if (empty) return 0;
    return huge ? std::nullopt : std::optional(bytes);
}

}  // namespace

std::string_view descr_of(NpyType type) {
    return row_of(type).descr;
}

uint64_t item_size(NpyType type) {
    return row_of(type).bytes;
}

int64_t NpyHeader::elements() const {
    // The other lengths of an empty array may be anything; those of other arrays fit in their file.
    if (std::ranges::find(shape, 0) != shape.end()) return 0;
    int64_t count = 1;
    for (const int64_t length : shape) count *= length;
    return count;
}

NpyHeader parse_npy_header(std::span<const std::byte> head, uint64_t file_bytes,
                           const std::string& path) {
    const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
    const auto byte = [&](size_t at) { return uint64_t{static_cast<uint8_t>(text[at])}; };
    if (!text.starts_with(kNpyMagic) || text.size() < 10) {
        throw InputFileError(path + ": is no .npy file: it does not begin as one");
    }
    const uint64_t major = byte(6);
    if (major < 1 || major > 3 || byte(7) != 0) {
        throw InputFileError(path + ": is of .npy format " + std::to_string(major) + "." +
                             std::to_string(byte(7)) + "; 1.0, 2.0 and 3.0 are read");
    }
    const size_t begin = major == 1 ? 10 : 12;
    uint64_t length = byte(8) | byte(9) << 8;
    if (major > 1) {
        if (text.size() < begin) throw InputFileError(path + ": ends within its header");
        length |= byte(10) << 16 | byte(11) << 24;
    }
    if (length > kMostNpyHeaderBytes - begin) {
        throw InputFileError(path + ": has a header of " + std::to_string(length) +
                             " bytes; arrays of numbers have short ones");
    }
    if (text.size() < begin + length) throw InputFileError(path + ": ends within its header");
    const NpyDictionary dictionary(text.substr(begin, length), path);
    NpyHeader header{
        .type = dictionary.type(), .shape = dictionary.shape(), .data_begin = begin + length};
    const auto bytes = data_bytes(header);
    if (!bytes || *bytes != file_bytes - header.data_begin) {
        throw InputFileError(path + ": has " + std::to_string(file_bytes - header.data_begin) +
                             " bytes of elements, but shape " + shape_text(header.shape) + " of " +
                             std::string(descr_of(header.type)) +
                             (bytes ? " takes " + std::to_string(*bytes) : " is beyond any file") +
                             "; the file is damaged or was cut off");
    }
    return header;
}

std::string npy_header(NpyType type, const std::vector<int64_t>& shape) {
    std::string text =
        "{'descr': '" + std::string(descr_of(type)) + "', 'fortran_order': False, 'shape': (";
    for (size_t i = 0; i < shape.size(); ++i) {
        text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
    }
    text += shape.size() == 1 ? ",), }" : "), }";
    constexpr size_t kBegin = 10;
    constexpr size_t kAlignment = 64;  // allows mapping the elements
    const size_t end = (kBegin + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
    text.resize(end - kBegin - 1, ' ');
    text += '\n';
    std::string header(kNpyMagic);
    header +=
        {'\1', '\0', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
    return header + text;
}

}  // namespace vocabpipe
