// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/blend_order.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace vocabpipe {

BlendOrder::BlendOrder(std::vector<double> weights)
    : weights_(std::move(weights)), given_(weights_.size()) {
    if (weights_.empty()) throw std::invalid_argument("BlendOrder: no weights");
}

size_t BlendOrder::furthest_behind() const {
    const double samples = std::max(static_cast<double>(next_), 1.0);
    size_t furthest = 0;
    double most = weights_[0] * samples - static_cast<double>(given_[0]);
    for (size_t i = 1; i < weights_.size(); ++i) {
        const double behind = weights_[i] * samples - static_cast<double>(given_[i]);
        if (behind > most) {
            most = behind;
            furthest = i;
        }
    }
    return furthest;
}

BlendOrder::Place BlendOrder::operator()(int64_t index) const {
    if (index < 0) throw std::out_of_range("BlendOrder: negative index");
    const std::scoped_lock lock(mutex_);
    if (index < next_) {
        next_ = 0;
        std::fill(given_.begin(), given_.end(), 0);
    }
    for (;; ++next_) {
        const size_t dataset = furthest_behind();
        const int64_t sample = given_[dataset];
        if (next_ == index) return {dataset, sample};
        ++given_[dataset];
    }
}

}  // namespace vocabpipe
