// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/learning_rate.hpp"

#include "src/train/options/check_options.hpp"
#include "src/train/options/train_options.hpp"
#include "vocabpipe/error.hpp"

#include <array>
#include <cmath>
#include <numbers>
#include <sstream>
#include <string>

namespace vocabpipe {

namespace {

// In the order of the enumerations.
constexpr std::array<std::string_view, 4> kStyles{"constant", "linear", "cosine", "WSD"};
constexpr std::array<std::string_view, 4> kWsdStyles{"linear", "cosine", "exponential",
                                                     "minus_sqrt"};

template <typename Style>
Style style_from(const std::array<std::string_view, 4>& names, const char* flag,
                 std::string_view name) {
    std::string known;
    for (size_t i = 0; i < names.size(); ++i) {
        if (names[i] == name) return static_cast<Style>(i);
        known += (i == 0 ? "" : ", ") + std::string(names[i]);
    }
    throw UsageError(std::string(flag) + " " + std::string(name) + ": must be one of " + known);
}

template <typename T>
[[noreturn]] void refuse(const char* flag, T value, const std::string& why) {
    std::ostringstream out;
    out << flag << " " << value << ": " << why;
    throw UsageError(out.str());
}

std::string text(double value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

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
            return 2 * std::pow(0.5, done) - 1;  // halves the way, moved so that it ends at 0
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

int64_t warmup_iters(const TrainOptions& o, int64_t decay_iters) {
    const LearningRateOptions& l = o.learning_rate;
    if (o.lr_warmup_iters < 0 || o.lr_warmup_iters > decay_iters) {
        refuse("--lr-warmup-iters", o.lr_warmup_iters,
               std::string("must be between 0 and ") +
                   (l.decay_iters ? "--lr-decay-iters " : "--train-iters ") +
                   std::to_string(decay_iters));
    }
    if (!l.warmup_fraction) return o.lr_warmup_iters;
    if (o.lr_warmup_iters > 0) {
        refuse("--lr-warmup-fraction", *l.warmup_fraction,
               "--lr-warmup-iters " + std::to_string(o.lr_warmup_iters) +
                   " already sets the warm-up; use only one of them");
    }
    if (!(*l.warmup_fraction >= 0 && *l.warmup_fraction <= 1)) {
        refuse("--lr-warmup-fraction", *l.warmup_fraction, "must be between 0 and 1");
    }
    return std::llround(*l.warmup_fraction * static_cast<double>(decay_iters));
}

void check_wsd(const LearningRateOptions& l, const LearningRateSchedule& s) {
    if (s.style != DecayStyle::wsd) {
        const std::string why =
            "requires --lr-decay-style WSD, got " + std::string(to_string(s.style));
        if (l.wsd_decay_iters) refuse("--lr-wsd-decay-iters", *l.wsd_decay_iters, why);
        if (l.wsd_style) refuse("--lr-wsd-decay-style", to_string(*l.wsd_style), why);
        return;
    }
    if (!l.wsd_decay_iters) {
        throw UsageError(
            "--lr-decay-style WSD: requires --lr-wsd-decay-iters N, the length of the decay at the "
            "end");
    }
    if (*l.wsd_decay_iters < 1 || *l.wsd_decay_iters > s.decay_iters - s.warmup_iters) {
        refuse("--lr-wsd-decay-iters", *l.wsd_decay_iters,
               "must be between 1 and the " + std::to_string(s.decay_iters - s.warmup_iters) +
                   " steps after the warm-up");
    }
}

}  // namespace

DecayStyle decay_style_from(std::string_view name) {
    return style_from<DecayStyle>(kStyles, "--lr-decay-style", name);
}

WsdDecayStyle wsd_decay_style_from(std::string_view name) {
    return style_from<WsdDecayStyle>(kWsdStyles, "--lr-wsd-decay-style", name);
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

LearningRateSchedule learning_rate_schedule(const TrainOptions& o) {
    const LearningRateOptions& l = o.learning_rate;
    // Written so that NaN fails as well.
    if (!(o.lr >= 0) || !std::isfinite(o.lr)) {
        refuse("--lr", o.lr, "must be a finite number, at least 0");
    }
    if (!(o.min_lr >= 0 && o.min_lr <= o.lr)) {
        refuse("--min-lr", o.min_lr, "must be between 0 and --lr " + text(o.lr));
    }
    if (l.decay_iters && *l.decay_iters < 1) {
        refuse("--lr-decay-iters", *l.decay_iters, "must be at least 1");
    }
    LearningRateSchedule s;
    s.lr = o.lr;
    s.min_lr = o.min_lr;
    s.decay_iters = l.decay_iters.value_or(o.train_iters);
    s.warmup_iters = warmup_iters(o, s.decay_iters);
    s.style = l.style;
    if (l.warmup_init) {
        if (!(*l.warmup_init >= 0 && *l.warmup_init <= o.lr)) {
            refuse("--lr-warmup-init", *l.warmup_init, "must be between 0 and --lr " + text(o.lr));
        }
        if (s.warmup_iters == 0) {
            refuse("--lr-warmup-init", *l.warmup_init,
                   "requires a warm-up; set --lr-warmup-iters or --lr-warmup-fraction");
        }
        s.warmup_init = *l.warmup_init;
    }
    check_wsd(l, s);
    s.wsd_style = l.wsd_style.value_or(WsdDecayStyle::exponential);
    s.wsd_decay_iters = l.wsd_decay_iters.value_or(0);
    return s;
}

}  // namespace vocabpipe
