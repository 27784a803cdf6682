// SPDX-License-Identifier: Apache-2.0
#include "src/train/log/progress_bar.hpp"

#include "src/support/text_layout.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace vocabpipe {

namespace {

constexpr int kWidestBar = 40;
constexpr int kNarrowestBar = 5;
constexpr std::chrono::milliseconds kBetween{100};
constexpr double kNewShare = 0.05;  // of the latest step in the mean: some twenty steps count

std::string time_text(double seconds) {
    // Longer than anybody waits, or not a number.
    if (!(seconds < 1e8)) return "? left";
    const auto whole = static_cast<long long>(std::ceil(std::max(seconds, 0.0)));
    if (whole >= 24 * 3600) return format("%lldd %02lldh left", whole / 86400, whole / 3600 % 24);
    return format("%lld:%02lld:%02lld left", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

std::string progress_text(const Progress& p, int columns) {
    const double done =
        p.last_step > 0
            ? std::clamp(static_cast<double>(p.step) / static_cast<double>(p.last_step), 0.0, 1.0)
            : 0.0;
    const auto limit = static_cast<size_t>(std::max(columns, 0));
    std::string text =
        format("%lld/%lld", static_cast<long long>(p.step), static_cast<long long>(p.last_step));
    const std::string parts[] = {format(" | loss %.4f", p.loss), " | " + time_text(p.seconds_left),
                                 format(" | %.0f tokens/s", p.tokens_per_second)};
    for (const std::string& part : parts) {
        if (text.size() + part.size() > limit) break;
        text += part;
    }
    if (text.size() > limit) return text.substr(0, limit);
    const int room = std::min(static_cast<int>(limit - text.size()) - 3, kWidestBar);
    if (room < kNarrowestBar) return text;
    const auto full = static_cast<size_t>(done * room);
    return "[" + std::string(full, '#') + std::string(static_cast<size_t>(room) - full, '.') +
           "] " + text;
}

ProgressBar::ProgressBar(std::function<int()> columns, int64_t last_step)
    : columns_(std::move(columns)), last_step_(last_step) {}

void ProgressBar::show(const StepMetrics& metrics) {
    if (!columns_) return;
    mean_seconds_ = mean_seconds_ == 0
                        ? metrics.step_seconds
                        : mean_seconds_ + kNewShare * (metrics.step_seconds - mean_seconds_);
    const auto now = std::chrono::steady_clock::now();
    if (shown_ && now - shown_at_ < kBetween) return;
    // The last column stays free: terminals wrap there.
    const int columns = columns_() - 1;
    if (columns < 1) return;
    const std::string text = progress_text(
        {.step = metrics.step,
         .last_step = last_step_,
         .loss = metrics.loss,
         .tokens_per_second = metrics.tokens_per_second,
         .seconds_left = mean_seconds_ * static_cast<double>(last_step_ - metrics.step)},
        columns);
    std::printf("\r\033[K%s", text.c_str());
    std::fflush(stdout);
    shown_ = true;
    shown_at_ = now;
}

void ProgressBar::clear() {
    if (!shown_) return;
    std::fputs("\r\033[K", stdout);
    std::fflush(stdout);
    shown_ = false;
}

}  // namespace vocabpipe
