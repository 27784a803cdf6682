// SPDX-License-Identifier: Apache-2.0
#include "src/tool/schedule/pass_times_file.hpp"

#include "src/support/joined.hpp"
#include "src/support/next_line.hpp"
#include "src/support/parse_number.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/support/split_text.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace vocabpipe::tool {

namespace {

constexpr std::string_view kHeader = "rank,op,stage,ns";
constexpr int64_t kMostNs = int64_t{1} << 40;  // as in profiles
constexpr int kMostRanks = 65535;              // stage numbers have 16 bits
constexpr int64_t kMostStages = 65535;
constexpr int kNoRank = -1;  // for a stage without a row so far

using Key = std::tuple<int, Op, int>;  // rank, op, stage (0 where the op has none)

class Reader {
public:
    /// `rank_of_stage`: the schedule's; empty: determined by the rows.
    Reader(int ranks, std::vector<int> rank_of_stage, const PassTimesText& file)
        : most_ranks_(ranks), rank_of_stage_(std::move(rank_of_stage)), path_(file.name) {
        grows_ = rank_of_stage_.empty();
        read(file.text);
    }

    [[nodiscard]] const std::vector<int>& rank_of_stage() const { return rank_of_stage_; }
    [[nodiscard]] int ranks() const { return ranks_; }  ///< the largest rank with a row, plus one

    /// Sets the costs that have a row. `keep`: the others stay; else they are 0, and F and a
    /// backward of every stage are required.
    void set_stages(std::vector<TableCosts::OpCosts>& stage_ns, bool keep) const;
    void set_ranks(std::vector<TableCosts::OpCosts>& rank_ns) const;

private:
    void read(std::string_view text) {
        bool header = false;
        for (size_t at = 0; at < text.size();) {
            const std::string_view line = next_line(text, at);
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
        if (grows_ && rank_of_stage_.empty()) fail("has no row for a stage");
    }

    [[noreturn]] void fail(const std::string& what) const {
        throw InputFileError(path_ + ":" + std::to_string(number_) + ": " + what);
    }

    int64_t integer(std::string_view name, std::string_view text, int64_t least,
                    int64_t most) const {
        const std::optional<int64_t> value = parse_number<int64_t>(text);
        if (!value || *value < least || *value > most) {
            fail(std::string(name) + " \"" + std::string(text) + "\": must be an integer from " +
                 std::to_string(least) + " to " + std::to_string(most));
        }
        return *value;
    }

    Op op_of(std::string_view text) const {
        for (size_t op = 0; op < kOpTraits.size(); ++op) {
            if (kOpTraits[op].name == text) return static_cast<Op>(op);
        }
        fail("op \"" + std::string(text) + "\": must be one of " +
             joined(kOpTraits, ", ", &OpTraits::name));
    }

    void row(std::string_view line) {
        const std::vector<std::string_view> cells = split_text(line);
        if (cells.size() != 4) fail("has " + std::to_string(cells.size()) + " cells; expected 4");
        const auto rank = static_cast<int>(integer("rank", cells[0], 0, most_ranks_ - 1));
        ranks_ = std::max(ranks_, rank + 1);
        const Op op = op_of(cells[1]);
        int stage = 0;
        if (traits(op).has_stage) {
            const int64_t last = grows_ ? kMostStages - 1 : std::ssize(rank_of_stage_) - 1;
            stage = static_cast<int>(integer("stage", cells[2], 0, last));
            const auto at = static_cast<size_t>(stage);
            if (at >= rank_of_stage_.size()) rank_of_stage_.resize(at + 1, kNoRank);
            if (rank_of_stage_[at] == kNoRank) rank_of_stage_[at] = rank;
            if (const int of = rank_of_stage_[at]; of != rank) {
                fail("stage " + std::to_string(stage) + ": is on rank " + std::to_string(of) +
                     ", not on rank " + std::to_string(rank));
            }
        } else if (cells[2] != "-" && !cells[2].empty()) {
            fail("stage \"" + std::string(cells[2]) + "\": " + std::string(cells[1]) +
                 " has no stage; write -");
        }
        // Schedules require transformer passes to take time.
        const int64_t ns = integer("ns", cells[3], traits(op).has_stage ? 1 : 0, kMostNs);
        if (!times_.emplace(Key{rank, op, stage}, ns).second) {
            fail(std::string(cells[1]) + " already has a row for this rank and stage");
        }
    }

    const int most_ranks_;
    std::vector<int> rank_of_stage_;
    const std::string& path_;
    bool grows_ = false;
    int ranks_ = 0;
    int number_ = 0;
    std::map<Key, int64_t> times_;
};

void Reader::set_stages(std::vector<TableCosts::OpCosts>& stage_ns, bool keep) const {
    using enum Op;
    for (size_t stage = 0; stage < rank_of_stage_.size(); ++stage) {
        const int rank = rank_of_stage_[stage];
        if (!keep) stage_ns[stage] = {};
        const auto cost = [&](Op op) -> int64_t& {
            return stage_ns[stage][static_cast<size_t>(op)];
        };
        const auto given = [&](Op op) {
            return times_.contains({rank, op, static_cast<int>(stage)});
        };
        for (const Op op : {F, B, I, W, R}) {
            if (given(op)) cost(op) = times_.at({rank, op, static_cast<int>(stage)});
        }
        if (given(I) != given(W)) {
            throw InputFileError(path_ + ": stage " + std::to_string(stage) +
                                 " has only one of I and W; add the other, or use B alone");
        }
        if (!keep && (!given(F) || !(given(B) || given(I)))) {
            throw InputFileError(path_ + ": stage " + std::to_string(stage) +
                                 (rank == kNoRank ? "" : " of rank " + std::to_string(rank)) +
                                 " has no row for " + (given(F) ? "B, or for I and W" : "F"));
        }
        if (given(B) && !given(I)) {
            cost(I) = cost(B) / 2;
            cost(W) = cost(B) - cost(I);
        } else if (given(I) && !given(B)) {
            cost(B) = cost(I) + cost(W);
        }
    }
}

void Reader::set_ranks(std::vector<TableCosts::OpCosts>& rank_ns) const {
    using enum Op;
    for (size_t rank = 0; rank < rank_ns.size(); ++rank) {
        for (const Op op : {E, G, S, T, Reduce, Report, Update}) {
            const auto found = times_.find({static_cast<int>(rank), op, 0});
            if (found != times_.end()) rank_ns[rank][static_cast<size_t>(op)] = found->second;
        }
    }
}

}  // namespace

PassTimesText read_pass_times_text(const std::string& path) {
    return {.name = path, .text = read_whole_file(path, "check the name and the permissions")};
}

StepPrice PassTimesFile::price(const Schedule& placed, const std::vector<int>& layers) const {
    StepPrice price = others_->price(placed, layers);
    const Reader reader(placed.ranks, placed.rank_of_stage, file_);
    reader.set_stages(price.costs.stage_ns, keep_);
    if (!keep_) {
        for (TableCosts::OpCosts& costs : price.costs.rank_ns) costs = {};
    }
    reader.set_ranks(price.costs.rank_ns);
    price.order = PassCosts::of(price.costs, price.sizes, placed);
    return price;
}

PlannedPassTimes read_planned_pass_times(const std::string& path) {
    const PassTimesText file = read_pass_times_text(path);
    const Reader reader(kMostRanks, {}, file);
    PlannedPassTimes times{.name = path, .rank_of_stage = reader.rank_of_stage()};
    times.stage_ns.resize(times.rank_of_stage.size());
    reader.set_stages(times.stage_ns, false);
    TableCosts::OpCosts nothing;
    nothing.fill(-1);
    times.rank_ns.assign(static_cast<size_t>(reader.ranks()), nothing);
    reader.set_ranks(times.rank_ns);
    return times;
}

}  // namespace vocabpipe::tool
