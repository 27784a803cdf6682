// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/loss_weights_writer.hpp"

#include <unistd.h>

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "src/support/crc32c.hpp"
#include "src/support/half.hpp"

namespace vocabpipe {

namespace {

/// Appends the bytes of `weight`; false if the type does not hold it.
bool store_weight(float weight, LossWeightType type, std::vector<std::byte>& to) {
    if (type == LossWeightType::u8) {
        if (!(weight >= 0 && weight <= 255) || weight != std::floor(weight)) return false;
        to.push_back(static_cast<std::byte>(weight));
        return true;
    }
    if (!(weight >= 0 && weight <= 65504)) return false;
    const uint16_t bits = half_of_number(weight);
    to.push_back(static_cast<std::byte>(bits & 0xffU));
    to.push_back(static_cast<std::byte>(bits >> 8));
    return true;
}

}  // namespace

LossWeightsWriter::LossWeightsWriter(const std::string& path, LossWeightType type,
                                     const LossWeightsPosition& from)
    : file_(path, from.bytes),
      type_(type),
      tail_{.count = static_cast<uint64_t>(from.count), .checksum = from.checksum} {
    if (from.bytes > 0) return;
    const loss_weights::Head head{.type = static_cast<uint32_t>(type)};
    file_.write(std::as_bytes(std::span(&head, 1)));
}

void LossWeightsWriter::append(std::span<const float> weights) {
    stored_.clear();
    for (const float weight : weights) {
        if (store_weight(weight, type_, stored_)) continue;
        throw std::invalid_argument("LossWeightsWriter::append: weight " + std::to_string(weight) +
                                    " as " + std::string(to_string(type_)));
    }
    tail_.count += weights.size();
    tail_.checksum = crc32c(stored_, tail_.checksum);
    file_.write(stored_);
}

LossWeightsPosition LossWeightsWriter::sync() {
    file_.sync();
    return {.count = static_cast<int64_t>(tail_.count),
            .bytes = file_.size(),
            .checksum = tail_.checksum};
}

void LossWeightsWriter::finish() {
    file_.write(std::as_bytes(std::span(&tail_, 1)));
    file_.sync();
}

void remove_loss_weights(const std::string& path) {
    std::array<char, loss_weights::kMagic.size()> begin{};
    std::ifstream(path, std::ios::binary).read(begin.data(), std::ssize(begin));
    if (begin == loss_weights::kMagic) ::unlink(path.c_str());
}

}  // namespace vocabpipe
