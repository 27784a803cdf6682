// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/rotary_share.hpp"

#include <cmath>
#include <optional>
#include <string>

namespace vocabpipe {

namespace {

constexpr const char* kShareKey = "partial_rotary_factor";

std::optional<StrictJson> share_in(const StrictJson& json) {
    if (!json.has(kShareKey) || json.at(kShareKey).is_null()) return std::nullopt;
    return json.at(kShareKey);
}

std::optional<StrictJson> given_share(const ConfigValues& file) {
    for (const char* const of : {"rope_scaling", "rope_parameters"}) {
        const auto rope = file.given(of);
        if (!rope) continue;
        if (const auto share = share_in(*rope)) return share;
    }
    return share_in(file.json());
}

}  // namespace

int64_t rotary_channels(int64_t head_size, double share) {
    return static_cast<int64_t>(static_cast<double>(head_size) * share);
}

void read_rotary_share(const ConfigValues& file, const char* older_key, double otherwise,
                       ModelConfig& c) {
    auto share = given_share(file);
    if (!share && older_key != nullptr) share = file.given(older_key);
    const int64_t channels =
        rotary_channels(c.head_size(), share ? share->number(0, 1) : otherwise);
    const auto refuse = [&](const std::string& must) {
        (share ? *share : file.json())
            .fail("rotary positions turn " + std::to_string(channels) + " of the " +
                  std::to_string(c.head_size()) + " columns of a head; " + must);
    };
    if (channels < 1) refuse("it must be at least one");
    if (channels % 2 != 0) {
        if (channels == c.head_size()) refuse("it must be an even number, or not all of them");
        const bool by_pair =
            c.rope.scaling == RopeScaling::yarn || c.rope.scaling == RopeScaling::longrope;
        if (by_pair) {
            refuse(
                "with this rope_type it must be an even number, since transformers computes "
                "none of an odd one");
        }
    }
    c.rotary_channels = channels == c.head_size() ? 0 : channels;
}

double rotary_share(const ModelConfig& c) {
    double share = static_cast<double>(c.rotary_dimension()) / static_cast<double>(c.head_size());
    while (rotary_channels(c.head_size(), share) < c.rotary_dimension()) {
        share = std::nextafter(share, 1);
    }
    return share;
}

namespace {

void refuse(const std::optional<StrictJson>& share) {
    if (!share || share->number(0) == 1) return;
    share->fail("rotary positions on part of a head are not supported for this family; must be 1");
}

}  // namespace

void refuse_rotary_share(const ConfigValues& file) {
    refuse(given_share(file));
}

void refuse_rotary_share(const StrictJson& rope) {
    refuse(share_in(rope));
}

}  // namespace vocabpipe
