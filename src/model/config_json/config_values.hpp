// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/families/families.hpp"
#include "src/support/strict_json.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace vocabpipe {

// No real model comes near these, and no product of widths leaves 63 bits.
inline constexpr int64_t kMostPositions = int64_t{1} << 31;
inline constexpr int64_t kWidest = int64_t{1} << 24;
inline constexpr int64_t kMostHeads = int64_t{1} << 16;

/// Depths of multi-token prediction, in files of every family.
inline constexpr const char* kPredictedKey = "num_nextn_predict_layers";
/// The key of ModelConfig::softmax_type, in Megatron's word; transformers has none.
inline constexpr const char* kSoftmaxTypeKey = "softmax_type";

/// Reads a config.json of a family. A key that is null counts as left out, as in transformers.
/// InputFileErrors name file, key, value and limit.
class ConfigValues {
public:
    /// The family must outlive this object.
    ConfigValues(StrictJson json, const ModelFamily& family)
        : json_(std::move(json)), family_(family) {}

    [[nodiscard]] const StrictJson& json() const { return json_; }
    [[nodiscard]] const ConfigKeys& keys() const { return family_.keys; }
    [[nodiscard]] const ConfigDefaults& defaults() const { return family_.defaults; }

    [[nodiscard]] std::optional<StrictJson> given(std::string_view key) const;
    [[nodiscard]] bool flag(std::string_view key, bool otherwise) const;
    /// Where null is false, for keys that transformers declares as "bool | None".
    [[nodiscard]] bool optional_flag(std::string_view key, bool otherwise) const {
        return flag(key, otherwise && !json_.has(key));
    }
    /// Neither 0 nor infinite when rounded to float.
    [[nodiscard]] double positive(std::string_view key, double otherwise) const;
    [[nodiscard]] double not_negative(std::string_view key, double otherwise) const;
    /// Columns of a matrix; the key must be there.
    [[nodiscard]] int64_t width(std::string_view key) const;
    /// At least 1 and at most `most`; `missing` if there is no such key, `null` if it is null.
    [[nodiscard]] int64_t size(std::string_view key, int64_t missing, int64_t null,
                               int64_t most) const;

private:
    StrictJson json_;
    const ModelFamily& family_;
};

}  // namespace vocabpipe
