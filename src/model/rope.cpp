// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/rope.hpp"

#include "src/model/yarn.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace vocabpipe {

namespace {

/// Linear in x from 0 at `low` to 1 at `high`; a step where they are equal.
double ramp(double x, double low, double high) {
    if (low == high) return x < low ? 0 : 1;
    return std::clamp((x - low) / (high - low), 0.0, 1.0);
}

/// Llama 3 scaling: short wavelengths stay, long ones are stretched.
double llama3(const Rope& rope, double frequency) {
    const double turns =
        static_cast<double>(rope.original_positions) * frequency / (2 * std::numbers::pi);
    const double kept = ramp(turns, rope.low_freq_factor, rope.high_freq_factor);
    return frequency * (kept + (1 - kept) / rope.factor);
}

/// YaRN: dimensions that turn often within the trained length stay, those that turn less than once
/// are interpolated.
class Yarn {
public:
    Yarn(const Rope& rope, int64_t columns) : rope_(rope) {
        const auto d = static_cast<double>(columns);
        const auto dimension_of = [&](double turns) {
            const double wavelength = static_cast<double>(rope.original_positions) / turns;
            return d * std::log(wavelength / (2 * std::numbers::pi)) / (2 * std::log(rope.theta));
        };
        first_ = dimension_of(rope.beta_fast);
        last_ = dimension_of(rope.beta_slow);
        if (rope.truncate) {
            first_ = std::floor(first_);
            last_ = std::ceil(last_);
        }
        first_ = std::max(first_, 0.0);
        last_ = std::min(last_, d - 1);
        if (first_ == last_) last_ += 0.001;  // as transformers does: a step instead of a ramp
    }
    [[nodiscard]] double operator()(int64_t pair, double frequency) const {
        const double interpolated = ramp(static_cast<double>(pair), first_, last_);
        return frequency * (1 - interpolated + interpolated / rope_.factor);
    }

private:
    const Rope& rope_;
    double first_, last_;
};

/// The factor of cos and sin.
double amplitude(const Rope& rope) {
    const bool longrope = rope.scaling == RopeScaling::longrope;
    if (rope.scaling != RopeScaling::yarn && !longrope) return 1;
    if (rope.attention_factor > 0) return rope.attention_factor;
    if (longrope) {
        const auto trained = static_cast<double>(rope.original_positions);
        return rope.factor <= 1 ? 1 : std::sqrt(1 + std::log(rope.factor) / std::log(trained));
    }
    const auto of = [&](double mscale) { return yarn_mscale(rope.factor, mscale); };
    const bool both = rope.mscale > 0 && rope.mscale_all_dim > 0;
    return both ? of(rope.mscale) / of(rope.mscale_all_dim) : of(1);
}

/// Dynamic NTK scaling (bloc97 and emozilla 2023): the longer the sequences, the longer all
/// wavelengths except the shortest.
double theta_of(const Rope& rope, int64_t columns, int64_t positions) {
    const bool grows = rope.scaling == RopeScaling::dynamic && rope.original_positions > 0 &&
                       positions > rope.original_positions;
    if (!grows) return rope.theta;
    const auto d = static_cast<double>(columns);
    const double times =
        static_cast<double>(positions) / static_cast<double>(rope.original_positions);
    return rope.theta * std::pow(rope.factor * times - (rope.factor - 1), d / (d - 2));
}

std::vector<double> frequencies(const Rope& rope, int64_t d, int64_t positions) {
    std::vector<double> result;
    const double theta = theta_of(rope, d, positions);
    const Yarn yarn(rope, d);
    const std::vector<double>& divisors =
        positions > rope.original_positions ? rope.long_factors : rope.short_factors;
    for (int64_t i = 0; 2 * i < d; ++i) {
        const double frequency =
            std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(d));
        switch (rope.scaling) {
            case RopeScaling::none:
            case RopeScaling::dynamic:
                result.push_back(frequency);
                break;
            case RopeScaling::linear:
                result.push_back(frequency / rope.factor);
                break;
            case RopeScaling::llama3:
                result.push_back(llama3(rope, frequency));
                break;
            case RopeScaling::yarn:
                result.push_back(yarn(i, frequency));
                break;
            case RopeScaling::longrope:
                result.push_back(frequency / divisors.at(static_cast<size_t>(i)));
                break;
        }
    }
    return result;
}

}  // namespace

std::vector<float> rotary_table(const Rope& rope, int64_t d, int64_t positions) {
    const std::vector<double> frequency = frequencies(rope, d, positions);
    const double factor = amplitude(rope);
    const size_t half = frequency.size();
    std::vector<float> table(static_cast<size_t>(positions) * 2 * half);
    for (int64_t t = 0; t < positions; ++t) {
        float* const row = table.data() + static_cast<size_t>(t) * 2 * half;
        for (size_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(t) * frequency[i];
            row[i] = static_cast<float>(factor * std::cos(angle));
            row[half + i] = static_cast<float>(factor * std::sin(angle));
        }
    }
    return table;
}

}  // namespace vocabpipe
