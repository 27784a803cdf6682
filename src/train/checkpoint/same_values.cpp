// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/same_values.hpp"

#include "src/train/checkpoint/stored_elements.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int64_t kPieceElements = 1 << 17;  // 512 KiB of each, which stay in the cache

/// Reads elements of a tensor as floats.
class Elements {
public:
    explicit Elements(const FoundTensor& of)
        : type_(of.tensor->type), begin_(of.tensor->begin), file_(of.file->open()) {}

    const std::vector<float>& read(int64_t first, int64_t count) {
        const uint64_t size = item_size(type_);
        bytes_.resize(static_cast<size_t>(count) * size);
        file_.read(begin_ + static_cast<uint64_t>(first) * size, bytes_);
        values_.resize(static_cast<size_t>(count));
        with_elements(type_, bytes_.data(), [&](const auto& element) {
            for (int64_t i = 0; i < count; ++i) values_[static_cast<size_t>(i)] = element(i);
        });
        return values_;
    }

private:
    StoredType type_;
    uint64_t begin_;
    InputFile file_;
    std::vector<std::byte> bytes_;
    std::vector<float> values_;
};

bool same(float a, float b) {
    return a == b || (std::isnan(a) && std::isnan(b));
}

}  // namespace

std::optional<int64_t> first_difference(const FoundTensor& a, const FoundTensor& b, int64_t first,
                                        int64_t last, const std::function<void()>& poll) {
    Elements of_a(a), of_b(b);
    for (int64_t at = first; at < last; at += kPieceElements) {
        if (poll) poll();
        const int64_t count = std::min(kPieceElements, last - at);
        const std::vector<float>& x = of_a.read(at, count);
        const std::vector<float>& y = of_b.read(at, count);
        const auto differs = std::mismatch(x.begin(), x.end(), y.begin(), same).first;
        if (differs != x.end()) return at + (differs - x.begin());
    }
    return std::nullopt;
}

}  // namespace vocabpipe
