// SPDX-License-Identifier: Apache-2.0
#include "src/tool/pass_times_file.hpp"

#include "src/support/parse_number.hpp"
#include "src/support/read_whole_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

namespace vocabpipe::tool {

namespace {

constexpr std::string_view kHeader = "rank,op,stage,ns";
constexpr int64_t kMostNs = int64_t{1} << 40;  // as in profiles

using Key = std::tuple<int, Op, int>;  // rank, op, stage (0 where the op has none)

class Reader {
public:
    Reader(const Schedule& schedule, const std::string& path) : schedule_(schedule), path_(path) {}

    std::map<Key, int64_t> read() {
        const std::string text = read_whole_file(path_, "check the name and the permissions");
        bool header = false;
        for (size_t at = 0; at < text.size();) {
            const size_t end = std::min(text.find('\n', at), text.size());
            std::string_view line = std::string_view(text).substr(at, end - at);
            if (line.ends_with('\r')) line.remove_suffix(1);
            at = end + 1;
            ++number_;
            if (line.empty() || line.front() == '#') continue;
            if (header) {
                row(line);
            } else if (line != kHeader) {
                fail("must begin with the line " + std::string(kHeader));
            }
            header = true;
        }
        if (!header) fail("is empty; it must begin with the line " + std::string(kHeader));
        return std::move(times_);
    }

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw InputFileError(path_ + ":" + std::to_string(number_) + ": " + what);
    }

    int64_t integer(std::string_view name, std::string_view text, int64_t least,
                    int64_t most) const {
        const std::optional<int64_t> value = parse_number<int64_t>(text);
        if (!value || *value < least || *value > most) {
            fail(std::string(name) + " \"" + std::string(text) +
                 "\": must be a whole number from " + std::to_string(least) + " to " +
                 std::to_string(most));
        }
        return *value;
    }

    Op op_of(std::string_view text) const {
        if (text == "Norm") return Op::Report;  // its name in files of former versions
        std::string known;
        for (size_t op = 0; op < kOpTraits.size(); ++op) {
            if (kOpTraits[op].name == text) return static_cast<Op>(op);
            known += (known.empty() ? "" : ", ") + std::string(kOpTraits[op].name);
        }
        fail("op \"" + std::string(text) + "\": must be one of " + known);
    }

    void row(std::string_view line) {
        std::array<std::string_view, 4> cells;
        size_t count = 0;
        for (size_t at = 0; at <= line.size(); ++count) {
            const size_t end = std::min(line.find(',', at), line.size());
            if (count < cells.size()) cells[count] = line.substr(at, end - at);
            at = end + 1;
        }
        if (count != cells.size()) fail("has " + std::to_string(count) + " cells, expected 4");
        const auto rank = static_cast<int>(integer("rank", cells[0], 0, schedule_.ranks - 1));
        const Op op = op_of(cells[1]);
        int stage = 0;
        if (traits(op).has_stage) {
            stage = static_cast<int>(integer("stage", cells[2], 0, schedule_.stages - 1));
            if (const int of = schedule_.rank_of_stage[static_cast<size_t>(stage)]; of != rank) {
                fail("stage " + std::to_string(stage) + ": is on rank " + std::to_string(of) +
                     ", not on rank " + std::to_string(rank));
            }
        } else if (cells[2] != "-" && !cells[2].empty()) {
            fail("stage \"" + std::string(cells[2]) + "\": " + std::string(cells[1]) +
                 " belongs to no stage; write -");
        }
        // Schedules are made for passes that take time.
        const int64_t ns = integer("ns", cells[3], traits(op).has_stage ? 1 : 0, kMostNs);
        if (!times_.emplace(Key{rank, op, stage}, ns).second) {
            fail(std::string(cells[1]) + " of this rank and stage has a row already");
        }
    }

    const Schedule& schedule_;
    const std::string& path_;
    int number_ = 0;
    std::map<Key, int64_t> times_;
};

}  // namespace

void set_pass_times(ScheduledStep& step, const std::string& path, bool keep) {
    using enum Op;
    const Schedule& schedule = step.schedule;
    const std::map<Key, int64_t> times = Reader(schedule, path).read();
    if (!keep) {
        for (TableCosts::OpCosts& costs : step.costs.stage_ns) costs = {};
        for (TableCosts::OpCosts& costs : step.costs.rank_ns) costs = {};
    }
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const int rank = schedule.rank_of_stage[static_cast<size_t>(stage)];
        TableCosts::OpCosts& costs = step.costs.stage_ns[static_cast<size_t>(stage)];
        const auto cost = [&](Op op) -> int64_t& { return costs[static_cast<size_t>(op)]; };
        const auto given = [&](Op op) { return times.contains({rank, op, stage}); };
        for (const Op op : {F, B, I, W, R}) {
            if (given(op)) cost(op) = times.at({rank, op, stage});
        }
        if (given(I) != given(W)) {
            throw InputFileError(path + ": stage " + std::to_string(stage) +
                                 " has one of I and W; give both, or B alone");
        }
        if (!keep && (!given(F) || !(given(B) || given(I)))) {
            throw InputFileError(path + ": stage " + std::to_string(stage) + " of rank " +
                                 std::to_string(rank) + " has no row for " +
                                 (given(F) ? "B, or for I and W" : "F"));
        }
        if (given(B) && !given(I)) {
            cost(I) = cost(B) / 2;
            cost(W) = cost(B) - cost(I);
        } else if (given(I) && !given(B)) {
            cost(B) = cost(I) + cost(W);
        }
    }
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        for (const Op op : {E, G, S, T, Reduce, Report, Update}) {
            const auto found = times.find({rank, op, 0});
            if (found == times.end()) continue;
            step.costs.rank_ns[static_cast<size_t>(rank)][static_cast<size_t>(op)] = found->second;
        }
    }
}

}  // namespace vocabpipe::tool
