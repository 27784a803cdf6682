// SPDX-License-Identifier: Apache-2.0
// Megatron's learning-rate schedules, whose lengths are all in steps or all in samples.
#include "vocabpipe/learning_rate.hpp"

#include "src/train/options/check_options.hpp"
#include "src/train/options/train_options.hpp"
#include "vocabpipe/error.hpp"

#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

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

/// A flag for a length, and its value; none: not given.
struct Length {
    const char* flag;
    std::optional<int64_t> value;
};

/// The lengths that flags give, all in steps or all in samples.
struct Lengths {
    const char* unit;
    Length run, warmup, decay, wsd_decay;

    [[nodiscard]] const Length& whole_decay() const { return decay.value ? decay : run; }
};

Lengths lengths_in_steps(const TrainOptions& o) {
    const LearningRateOptions& l = o.learning_rate;
    Lengths lengths{.unit = "steps",
                    .run = {"--train-iters", o.train_iters},
                    .warmup = {"--lr-warmup-iters", std::nullopt},
                    .decay = {"--lr-decay-iters", l.decay_iters},
                    .wsd_decay = {"--lr-wsd-decay-iters", l.wsd_decay_iters}};
    if (o.lr_warmup_iters != 0) lengths.warmup.value = o.lr_warmup_iters;
    return lengths;
}

Lengths lengths_in_samples(const TrainOptions& o) {
    const LearningRateOptions& l = o.learning_rate;
    return {.unit = "samples",
            .run = {"--train-samples", o.train_samples},
            .warmup = {"--lr-warmup-samples", l.warmup_samples},
            .decay = {"--lr-decay-samples", l.decay_samples},
            .wsd_decay = {"--lr-wsd-decay-samples", l.wsd_decay_samples}};
}

/// The lengths that were given. UsageError if some are in steps and others in samples.
Lengths lengths_of(const TrainOptions& o) {
    Lengths used = lengths_in_steps(o);
    Lengths others = lengths_in_samples(o);
    if (o.train_samples) std::swap(used, others);
    const auto refuse_other = [&](const Length& other, const Length& instead) {
        if (!other.value) return;
        refuse(other.flag, *other.value,
               std::string("counts ") + others.unit + ", but " + used.run.flag + " " + used.unit +
                   "; use " + instead.flag);
    };
    refuse_other(others.warmup, used.warmup);
    refuse_other(others.decay, used.decay);
    refuse_other(others.wsd_decay, used.wsd_decay);
    return used;
}

int64_t warmup_of(const std::optional<double>& fraction, const Lengths& lengths) {
    const Length& decay = lengths.whole_decay();
    const int64_t given = lengths.warmup.value.value_or(0);
    if (given < 0 || given > *decay.value) {
        refuse(lengths.warmup.flag, given,
               std::string("must be between 0 and ") + decay.flag + " " +
                   std::to_string(*decay.value));
    }
    if (!fraction) return given;
    if (given > 0) {
        refuse("--lr-warmup-fraction", *fraction,
               std::string(lengths.warmup.flag) + " " + std::to_string(given) +
                   " already sets the warm-up; use only one of them");
    }
    if (!(*fraction >= 0 && *fraction <= 1)) {
        refuse("--lr-warmup-fraction", *fraction, "must be between 0 and 1");
    }
    return std::llround(*fraction * static_cast<double>(*decay.value));
}

void check_wsd(const LearningRateOptions& l, const Lengths& lengths,
               const LearningRateSchedule& s) {
    const Length& decay = lengths.wsd_decay;
    if (s.style != DecayStyle::wsd) {
        const std::string why =
            "requires --lr-decay-style WSD, got " + std::string(to_string(s.style));
        if (decay.value) refuse(decay.flag, *decay.value, why);
        if (l.wsd_style) refuse("--lr-wsd-decay-style", to_string(*l.wsd_style), why);
        return;
    }
    if (!decay.value) {
        throw UsageError("--lr-decay-style WSD: requires " + std::string(decay.flag) +
                         " N, the length of the decay at the end");
    }
    if (*decay.value < 1 || *decay.value > s.decay_iters - s.warmup_iters) {
        refuse(decay.flag, *decay.value,
               "must be between 1 and the " + std::to_string(s.decay_iters - s.warmup_iters) + " " +
                   lengths.unit + " after the warm-up");
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
    const Lengths lengths = lengths_of(o);
    if (lengths.decay.value && *lengths.decay.value < 1) {
        refuse(lengths.decay.flag, *lengths.decay.value, "must be at least 1");
    }
    LearningRateSchedule s;
    s.by_samples = o.train_samples.has_value();
    s.lr = o.lr;
    s.min_lr = o.min_lr;
    s.decay_iters = *lengths.whole_decay().value;
    s.warmup_iters = warmup_of(l.warmup_fraction, lengths);
    s.style = l.style;
    if (l.warmup_init) {
        if (!(*l.warmup_init >= 0 && *l.warmup_init <= o.lr)) {
            refuse("--lr-warmup-init", *l.warmup_init, "must be between 0 and --lr " + text(o.lr));
        }
        if (s.warmup_iters == 0) {
            refuse("--lr-warmup-init", *l.warmup_init,
                   std::string("requires a warm-up; set ") + lengths.warmup.flag +
                       " or --lr-warmup-fraction");
        }
        s.warmup_init = *l.warmup_init;
    }
    check_wsd(l, lengths, s);
    s.wsd_style = l.wsd_style.value_or(WsdDecayStyle::exponential);
    s.wsd_decay_iters = lengths.wsd_decay.value.value_or(0);
    return s;
}

}  // namespace vocabpipe
