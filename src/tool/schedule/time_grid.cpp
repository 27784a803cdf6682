// SPDX-License-Identifier: Apache-2.0
#include "src/tool/schedule/time_grid.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

namespace vocabpipe::tool {

namespace {

constexpr char kIdle = '.';
constexpr char kBusy = '-';
constexpr size_t kAxisGap = 8;  // least number of characters from one time to the next

/// ANSI codes of backgrounds on which black text is readable.
std::string_view colour_of(Op op) {
    switch (op) {
        case Op::F:
            return "\x1b[30;44m";
        case Op::B:
        case Op::I:
            return "\x1b[30;42m";
        case Op::W:
            return "\x1b[30;46m";
        case Op::R:
            return "\x1b[30;47m";
        case Op::S:
            return "\x1b[30;45m";
        case Op::T:
            return "\x1b[30;41m";
        default:
            return "\x1b[30;43m";
    }
}
constexpr std::string_view kPlain = "\x1b[0m";

struct Character {
    char text = kIdle;
    size_t pass = std::numeric_limits<size_t>::max();  ///< index in the rank's list; none: idle
};

class Grid {
public:
    Grid(const Schedule& schedule, const PassTimes& times, const TimeGridOptions& options)
        : schedule_(schedule), times_(times), options_(options) {
        one_stage_per_rank_ = schedule.stages == schedule.ranks;
        margin_ = 5 + std::to_string(schedule.ranks - 1).size() + 2;
        width_ = static_cast<size_t>(std::max(options.width, 40)) - margin_;
        first_ = std::numeric_limits<int64_t>::max();
        for (const auto& begins : times.begin) {
            if (!begins.empty()) first_ = std::min(first_, begins.front());
        }
        choose_scale();
    }

    std::string text() const {
        std::string text = axis();
        for (size_t rank = 0; rank < schedule_.passes.size(); ++rank) {
            std::string name = "rank " + std::to_string(rank);
            name.resize(margin_ - 1, ' ');
            text += name + "|" + (options_.colour ? coloured(row(rank), rank) : plain(row(rank))) +
                    "\n";
        }
        if (column(times_.makespan) > width_) {
            text += "cut at " + time_at(width_) + " of " + options_.time_text(times_.makespan) +
                    "; see more with --width " + std::to_string(column(times_.makespan) + margin_) +
                    "\n";
        }
        return text;
    }

private:
    std::string label(const Pass& pass) const {
        std::string name = to_string(pass);
        if (one_stage_per_rank_) name.erase(0, name.find_first_not_of("0123456789"));
        return name;
    }

    void choose_scale() {
        int64_t shortest = std::numeric_limits<int64_t>::max();
        size_t longest_name = 1;
        for (size_t rank = 0; rank < schedule_.passes.size(); ++rank) {
            for (size_t i = 0; i < schedule_.passes[rank].size(); ++i) {
                const Pass& pass = schedule_.passes[rank][i];
                const int64_t ticks = times_.end[rank][i] - times_.begin[rank][i];
                if (traits(pass.op).vocabulary || ticks == 0) continue;
                shortest = std::min(shortest, ticks);
                longest_name = std::max(longest_name, label(pass).size());
            }
        }
        if (times_.makespan == 0 || shortest > times_.makespan) return;
        const double readable =
            static_cast<double>(longest_name + 1) / static_cast<double>(shortest);
        const double fitting = static_cast<double>(width_) / static_cast<double>(times_.makespan);
        const bool letters_fit = fitting * static_cast<double>(shortest) >= 1;
        scale_ = letters_fit ? std::min(readable, fitting) : readable;
    }

    /// Column of a time since the first begin.
    size_t column(int64_t time) const {
        return static_cast<size_t>(std::floor(static_cast<double>(time) * scale_ + 1e-6));
    }
    std::string time_at(size_t column) const {
        return options_.time_text(
            static_cast<int64_t>(std::llround(static_cast<double>(column) / scale_)));
    }

    /// Distance of the axis marks: round in the unit, and wide enough to be read.
    int64_t axis_step() const {
        for (int64_t step = options_.ticks_per_unit;; step *= 10) {
            for (const int64_t times : {1, 2, 5}) {
                if (column(times * step) >= kAxisGap) return times * step;
            }
        }
    }

    std::string axis() const {
        const int64_t step = axis_step();
        std::string text;
        for (int64_t time = 0; time <= times_.makespan && column(time) < width_; time += step) {
            const std::string mark = options_.time_text(time);
            if (column(time) + mark.size() > width_) break;
            text.resize(margin_ + column(time), ' ');
            text += mark;
        }
        return text + "\n";
    }

    std::vector<Character> row(size_t rank) const {
        const std::vector<Pass>& list = schedule_.passes[rank];
        std::vector<Character> row(std::min(width_, column(times_.makespan)));
        for (size_t i = 0; i < list.size(); ++i) {
            // The members of an overlapped pair may run at the same time: one box for both.
            const bool joined = i + 1 < list.size() && list[i].with_next &&
                                times_.begin[rank][i] == times_.begin[rank][i + 1];
            const size_t begin = column(times_.begin[rank][i] - first_);
            const size_t end = column(times_.end[rank][i] - first_);
            std::string name = label(list[i]);
            if (joined) name += "+" + label(list[i + 1]);
            if (name.size() > end - begin) name = name.substr(name.find_first_not_of("0123456789"));
            if (name.size() > end - begin) name.resize(1);
            for (size_t at = begin; at < std::min(end, row.size()); ++at) {
                row[at] = {at - begin < name.size() ? name[at - begin] : kBusy, i};
            }
            i += joined ? 1 : 0;
        }
        return row;
    }

    static std::string plain(const std::vector<Character>& row) {
        std::string text;
        for (const Character& c : row) text += c.text;
        return text;
    }

    std::string coloured(const std::vector<Character>& row, size_t rank) const {
        std::string text;
        size_t before = Character{}.pass;
        for (const Character& c : row) {
            if (c.pass != before) {
                text += c.pass < schedule_.passes[rank].size()
                            ? colour_of(schedule_.passes[rank][c.pass].op)
                            : kPlain;
                before = c.pass;
            }
            text += c.text == kBusy ? ' ' : c.text;
        }
        return text + std::string(kPlain);
    }

    const Schedule& schedule_;
    const PassTimes& times_;
    const TimeGridOptions& options_;
    bool one_stage_per_rank_ = false;
    size_t margin_ = 0;  ///< for "rank 3 |"
    size_t width_ = 0;   ///< for the passes
    int64_t first_ = 0;
    double scale_ = 1;  ///< characters per unit of time
};

}  // namespace

std::string time_grid(const Schedule& schedule, const PassTimes& times,
                      const TimeGridOptions& options) {
    return Grid(schedule, times, options).text();
}

}  // namespace vocabpipe::tool
