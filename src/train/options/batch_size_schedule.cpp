// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/batch_size_schedule.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <string>

namespace vocabpipe {

namespace {

using std::to_string;

/// Limits that keep every product within 64 bits.
constexpr int64_t kMostSamples = int64_t{1} << 46;
constexpr int64_t kMostIncrements = int64_t{1} << 16;

}  // namespace

BatchSizeSchedule::BatchSizeSchedule(int64_t full, const std::optional<BatchSizeRampUp>& ramp_up,
                                     int64_t unit)
    : full_(full), unit_(unit), ramp_up_(ramp_up) {
    if (!ramp_up) return;
    const std::string flag = "--rampup-batch-size " + to_string(ramp_up->start) + " " +
                             to_string(ramp_up->increment) + " " + to_string(ramp_up->samples);
    const auto refuse = [&](const std::string& what) { throw UsageError(flag + ": " + what); };
    const auto positive = [&](const char* name, int64_t value) {
        if (value < 1) {
            refuse(std::string(name) + " is " + to_string(value) + ", but must be at least 1");
        }
    };
    positive("START", ramp_up->start);
    positive("INCREMENT", ramp_up->increment);
    positive("SAMPLES", ramp_up->samples);
    if (ramp_up->samples > kMostSamples)
        refuse("SAMPLES must be at most " + to_string(kMostSamples));
    if (ramp_up->start >= full) {
        refuse("START must be below --global-batch-size " + to_string(full) +
               "; remove the flag for batches of constant size");
    }
    if ((full - ramp_up->start) % ramp_up->increment != 0) {
        refuse("the difference from START to --global-batch-size " + to_string(full) + " is " +
               to_string(full - ramp_up->start) +
               " sequences, which must be a multiple of INCREMENT");
    }
    for (const int64_t size : {ramp_up->start, ramp_up->increment}) {
        if (size % unit == 0) continue;
        refuse(to_string(size) + " is not a multiple of " + to_string(unit) +
               ", the sequences of one microbatch on every replica");
    }
    increments_ = (full - ramp_up->start) / ramp_up->increment;
    if (increments_ > kMostIncrements) {
        refuse("has " + to_string(increments_) + " increments, but must have at most " +
               to_string(kMostIncrements) + "; use a larger INCREMENT");
    }
}

int64_t BatchSizeSchedule::at(int64_t consumed) const {
    if (!ramp_up_ || consumed >= ramp_up_->samples) return full_;
    return ramp_up_->start + consumed * increments_ / ramp_up_->samples * ramp_up_->increment;
}

int64_t BatchSizeSchedule::steps_of(int64_t samples) const {
    if (!ramp_up_) return samples / full_;
    int64_t steps = 0;
    int64_t consumed = 0;
    // Counts all steps of one size at once.
    for (const int64_t last = std::min(samples, ramp_up_->samples); consumed <= last;) {
        const int64_t size = at(consumed);
        const int64_t increment = (size - ramp_up_->start) / ramp_up_->increment + 1;
        int64_t end = last + 1;  // no step of this size begins at or after it
        if (increment <= increments_) {
            end = std::min(end, (increment * ramp_up_->samples + increments_ - 1) / increments_);
        }
        const int64_t taken = (end - consumed + size - 1) / size;
        steps += taken;
        consumed += taken * size;
    }
    return steps + std::max<int64_t>(samples - consumed, 0) / full_;
}

std::vector<int> BatchSizeSchedule::smaller() const {
    std::vector<int> sizes;
    for (int64_t i = 0; i < increments_; ++i) {
        sizes.push_back(static_cast<int>((ramp_up_->start + i * ramp_up_->increment) / unit_));
    }
    return sizes;
}

}  // namespace vocabpipe
