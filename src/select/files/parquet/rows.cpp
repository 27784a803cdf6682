// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/parquet/rows.hpp"

#include "src/support/half.hpp"

#include <type_traits>

namespace vocabpipe {

namespace {

/// Calls `use` with the array as one of its type; false if that is not numeric.
template <typename Use>
bool with_numbers(const arrow::Array& array, const Use& use) {
    switch (array.type_id()) {
        case arrow::Type::INT8:
            use(static_cast<const arrow::Int8Array&>(array));
            return true;
        case arrow::Type::UINT8:
            use(static_cast<const arrow::UInt8Array&>(array));
            return true;
        case arrow::Type::INT16:
            use(static_cast<const arrow::Int16Array&>(array));
            return true;
        case arrow::Type::UINT16:
            use(static_cast<const arrow::UInt16Array&>(array));
            return true;
        case arrow::Type::INT32:
            use(static_cast<const arrow::Int32Array&>(array));
            return true;
        case arrow::Type::UINT32:
            use(static_cast<const arrow::UInt32Array&>(array));
            return true;
        case arrow::Type::INT64:
            use(static_cast<const arrow::Int64Array&>(array));
            return true;
        case arrow::Type::UINT64:
            use(static_cast<const arrow::UInt64Array&>(array));
            return true;
        case arrow::Type::HALF_FLOAT:
            use(static_cast<const arrow::HalfFloatArray&>(array));
            return true;
        case arrow::Type::FLOAT:
            use(static_cast<const arrow::FloatArray&>(array));
            return true;
        case arrow::Type::DOUBLE:
            use(static_cast<const arrow::DoubleArray&>(array));
            return true;
        default:
            return false;
    }
}

[[noreturn]] void refuse_type(const arrow::Array& array, const std::string& where,
                              const char* expected) {
    throw InputFileError(where + " is of type " + array.type()->ToString() + "; it must be " +
                         expected);
}

template <typename To>
void copy_as(const arrow::Array& from, int64_t first, std::span<To> to, const std::string& where) {
    const bool known = with_numbers(from, [&](const auto& array) {
        using Array = std::decay_t<decltype(array)>;
        for (size_t i = 0; i < to.size(); ++i) {
            const auto element = array.Value(first + static_cast<int64_t>(i));
            if constexpr (std::is_same_v<Array, arrow::HalfFloatArray>) {
                to[i] = static_cast<To>(number_of_half(element));
            } else {
                to[i] = static_cast<To>(element);
            }
        }
    });
    if (!known) refuse_type(from, where, "integers or floating-point numbers");
}

}  // namespace

const arrow::Array& column_of(const ParquetRows::Part& part, const char* name,
                              const std::string& path) {
    const std::shared_ptr<arrow::Array> column = part.batch.GetColumnByName(name);
    if (!column) {
        throw InputFileError(path + ": has several columns \"" + std::string(name) +
                             "\"; keep one of them");
    }
    for (int64_t i = 0; column->null_count() > 0 && i < part.count; ++i) {
        if (column->IsNull(part.offset + i)) {
            throw InputFileError(place_of(path, part.row + i, name) +
                                 " is missing; fill it or remove the row");
        }
    }
    return *column;  // the batch keeps it
}

void copy_numbers(const arrow::Array& from, int64_t first, std::span<double> to,
                  const std::string& where) {
    copy_as(from, first, to, where);
}
void copy_numbers(const arrow::Array& from, int64_t first, std::span<float> to,
                  const std::string& where) {
    copy_as(from, first, to, where);
}

int64_t integer_at(const arrow::Array& from, int64_t index, const std::string& where) {
    int64_t integer = 0;
    bool fits = false;
    with_numbers(from, [&](const auto& array) {
        using Value = std::decay_t<decltype(array.Value(0))>;
        using Array = std::decay_t<decltype(array)>;
        if constexpr (std::is_integral_v<Value> && !std::is_same_v<Array, arrow::HalfFloatArray>) {
            integer = static_cast<int64_t>(array.Value(index));
            fits = true;
        }
    });
    if (!fits) refuse_type(from, where, "integers");
    return integer;
}

void check_ids(const ParquetRows::Part& part, const std::string& path) {
    if (part.batch.schema()->GetFieldIndex("id") < 0) return;
    const arrow::Array& ids = column_of(part, "id", path);
    for (int64_t i = 0; i < part.count; ++i) {
        const int64_t id = integer_at(ids, part.offset + i, path + ": column id");
        if (id == part.row + i) continue;
        throw InputFileError(place_of(path, part.row + i, "id") + " is " + std::to_string(id) +
                             "; ids must be 0, 1, 2 and so on: sort the table by id, and number "
                             "samples from 0");
    }
}

}  // namespace vocabpipe
