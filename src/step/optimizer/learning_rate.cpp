// SPDX-License-Identifier: Apache-2.0
// Megatron's learning-rate schedules as functions of the updates done so far.
#include "vocabpipe/learning_rate.hpp"

#include "src/support/names_of.hpp"

#include <array>
#include <cmath>
#include <numbers>
#include <string>

namespace vocabpipe {

namespace {

// In the order of the enumerations.
constexpr std::array<std::string_view, 4> kStyles{"constant", "linear", "cosine", "WSD"};
constexpr std::array<std::string_view, 4> kWsdStyles{"linear", "cosine", "exponential",
                                                     "minus_sqrt"};

double half_cosine(double done) {
    return 0.5 * (1 + std::cos(std::numbers::pi * done));
}

/// 1 at the beginning of the decay, 0 at its end; `done` goes from 0 to 1.
double wsd_share(WsdDecayStyle style, double done) {
    switch (style) {
        case WsdDecayStyle::linear:
            return 1 - done;
        case WsdDecayStyle::cosine:
            return half_cosine(done);
        case WsdDecayStyle::exponential:
            return 2 * std::pow(0.5, done) - 1;  // halvings, shifted and scaled to end at 0
        case WsdDecayStyle::minus_sqrt:
            return 1 - std::sqrt(done);
    }
    return 0;
}

double share(const LearningRateSchedule& s, int64_t updates) {
    const double done = static_cast<double>(updates - s.warmup_iters) /
                        static_cast<double>(s.decay_iters - s.warmup_iters);
    switch (s.style) {
        case DecayStyle::constant:
            return 1;
        case DecayStyle::linear:
            return 1 - done;
        case DecayStyle::cosine:
            return half_cosine(done);
        case DecayStyle::wsd: {
            const int64_t begin = s.decay_iters - s.wsd_decay_iters;
            if (updates <= begin) return 1;
            return wsd_share(s.wsd_style, static_cast<double>(updates - begin) /
                                              static_cast<double>(s.wsd_decay_iters));
        }
    }
    return 0;
}

}  // namespace

DecayStyle decay_style_from(std::string_view name) {
    return value_named(
        "--lr-decay-style", name,
        {DecayStyle::constant, DecayStyle::linear, DecayStyle::cosine, DecayStyle::wsd});
}

WsdDecayStyle wsd_decay_style_from(std::string_view name) {
    return value_named("--lr-wsd-decay-style", name,
                       {WsdDecayStyle::linear, WsdDecayStyle::cosine, WsdDecayStyle::exponential,
                        WsdDecayStyle::minus_sqrt});
}

std::string_view to_string(DecayStyle style) {
    return kStyles[static_cast<size_t>(style)];
}

std::string_view to_string(WsdDecayStyle style) {
    return kWsdStyles[static_cast<size_t>(style)];
}

double LearningRateSchedule::after(int64_t updates) const {
    if (warmup_iters > 0 && updates <= warmup_iters) {
        return warmup_init + (lr - warmup_init) * static_cast<double>(updates) /
                                 static_cast<double>(warmup_iters);
    }
    if (style == DecayStyle::constant) return lr;
    if (updates >= decay_iters) return min_lr;
    return min_lr + share(*this, updates) * (lr - min_lr);
}

}  // namespace vocabpipe
