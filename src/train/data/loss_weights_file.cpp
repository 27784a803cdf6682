// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/loss_weights_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "src/support/crc32c.hpp"
#include "src/support/half.hpp"
#include "src/train/data/check_range.hpp"
#include "src/train/data/spaced_blocks.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr int64_t kWeightsAtOnce = 8192;  // on the stack, and in the cache

[[noreturn]] void fail_weights(const DataFile& file, const std::string& reason) {
    throw InputFileError(file.path() + ": " + reason);
}

/// For a file that may not be what its name says.
[[noreturn]] void fail_as_weights(const DataFile& file, const std::string& reason) {
    fail_weights(file, reason +
                           "; a file of this name beside tokens has their loss weights; write it "
                           "again, or remove it");
}

float stored_weight(LossWeightType type, const std::byte* data, size_t i) {
    if (type == LossWeightType::u8) return static_cast<float>(data[i]);
    uint16_t bits = 0;
    std::memcpy(&bits, data + 2 * i, sizeof bits);
    return number_of_half(bits);
}

}  // namespace

LossWeightsFile::LossWeightsFile(const std::string& path) : file_(path) {
    using loss_weights::Head;
    using loss_weights::Tail;
    const std::string cut =
        "has " + std::to_string(file_.size()) + " bytes, which is not a whole file of loss weights";
    const std::vector<std::byte> begin = file_.head(loss_weights::kMagic.size());
    if (begin.size() < loss_weights::kMagic.size() ||
        std::memcmp(begin.data(), loss_weights::kMagic.data(), begin.size()) != 0) {
        fail_as_weights(file_, "is not a file of loss weights (no VPWEIGHT magic)");
    }
    if (file_.size() < sizeof(Head) + sizeof(Tail)) fail_as_weights(file_, cut);
    const Head head = file_.load<Head>(0);
    if (head.version != loss_weights::kVersion) {
        fail_weights(file_, "version " + std::to_string(head.version) +
                                " of loss weights is not supported; expected 1");
    }
    if (head.type != 1 && head.type != 2) {
        fail_weights(file_, "loss weights of type " + std::to_string(head.type) +
                                " are unknown (1 u8, 2 fp16)");
    }
    type_ = static_cast<LossWeightType>(head.type);
    const Tail tail = file_.load<Tail>(file_.size() - sizeof(Tail));
    const uint64_t weights = file_.size() - sizeof(Head) - sizeof(Tail);
    const auto bytes = static_cast<uint64_t>(loss_weight_bytes(type_));
    if (weights % bytes != 0 || tail.count != weights / bytes) fail_as_weights(file_, cut);
    count_ = static_cast<int64_t>(tail.count);
    checksum_ = tail.checksum;
}

void LossWeightsFile::require_size(int64_t tokens) const {
    if (count_ == tokens) return;
    fail_as_weights(file_, "has " + std::to_string(count_) + " loss weights, but there are " +
                               std::to_string(tokens) +
                               " tokens; the files do not belong together");
}

template <typename Use>
void LossWeightsFile::each_block(int64_t first, int64_t count, const Use& use) const {
    std::array<std::byte, kWeightsAtOnce * 2> stored;  // not initialised: it is read into
    std::array<float, kWeightsAtOnce> weights;         // likewise
    const auto bytes = static_cast<size_t>(loss_weight_bytes(type_));
    while (count > 0) {
        const auto here = static_cast<size_t>(std::min(count, kWeightsAtOnce));
        const auto block = std::span(stored).first(here * bytes);
        file_.read(sizeof(loss_weights::Head) + static_cast<uint64_t>(first) * bytes, block);
        for (size_t i = 0; i < here; ++i) {
            weights[i] = stored_weight(type_, stored.data(), i);
            if (weights[i] >= 0 && std::isfinite(weights[i])) continue;
            fail_weights(file_,
                         "the loss weight of token " +
                             std::to_string(first + static_cast<int64_t>(i)) + " is " +
                             std::to_string(weights[i]) +
                             ", but weights are finite and not negative; the file is damaged, or "
                             "what wrote it is wrong");
        }
        use(std::span<const std::byte>(block), std::span<const float>(weights).first(here));
        first += static_cast<int64_t>(here);
        count -= static_cast<int64_t>(here);
    }
}

void LossWeightsFile::read(int64_t first, std::span<float> out) const {
    check_range("LossWeightsFile::read: weights", first, out.size(), count_);
    auto to = out.begin();
    each_block(first, std::ssize(out),
               [&](std::span<const std::byte>, std::span<const float> some) {
                   to = std::ranges::copy(some, to).out;
               });
}

LossWeightsFile::Totals LossWeightsFile::check(int64_t most) const {
    Totals totals;
    uint32_t found = 0;
    const SpacedBlocks blocks(count_, most);
    for (int64_t i = 0; i < blocks.count(); ++i) {
        each_block(blocks.first(i), blocks.length(i),
                   [&](std::span<const std::byte> bytes, std::span<const float> some) {
                       found = crc32c(bytes, found);
                       for (const float weight : some) {
                           totals.sum += static_cast<double>(weight);
                           totals.positive += weight > 0 ? 1 : 0;
                       }
                   });
    }
    if (blocks.all() && checksum_ != 0 && found != checksum_) {
        char text[64];
        std::snprintf(text, sizeof text, "the loss weights have checksum %08x, not %08x", found,
                      checksum_);
        fail_weights(file_, std::string(text) + "; the file is damaged; write it again");
    }
    return totals;
}

}  // namespace vocabpipe
