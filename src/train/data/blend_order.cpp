// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/blend_order.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace vocabpipe {

namespace {

constexpr int64_t kBetween = 1 << 16;  // samples between the counts that are kept

}  // namespace

BlendOrder::BlendOrder(std::vector<double> weights) : weights_(std::move(weights)) {
    if (weights_.empty()) throw std::invalid_argument("BlendOrder: no weights");
    now_.given.resize(weights_.size());
    earlier_ = earliest_ = now_;
}

size_t BlendOrder::furthest_behind() const {
    const double samples = std::max(static_cast<double>(now_.samples), 1.0);
    size_t furthest = 0;
    double most = weights_[0] * samples - static_cast<double>(now_.given[0]);
    for (size_t i = 1; i < weights_.size(); ++i) {
        const double behind = weights_[i] * samples - static_cast<double>(now_.given[i]);
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
    if (index < now_.samples) {
        if (index < earlier_.samples) earlier_ = earliest_;
        if (index < earlier_.samples) {
            earlier_ = earliest_ = {.samples = 0, .given = std::vector<int64_t>(weights_.size())};
        }
        now_ = earlier_;
    }
    for (;; ++now_.samples) {
        if (now_.samples - earlier_.samples >= kBetween) {
            earliest_ = std::exchange(earlier_, now_);
        }
        const size_t dataset = furthest_behind();
        const int64_t sample = now_.given[dataset];
        if (now_.samples == index) return {dataset, sample};
        ++now_.given[dataset];
    }
}

}  // namespace vocabpipe
