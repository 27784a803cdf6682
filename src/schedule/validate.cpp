// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/validate.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

// Every stage is on one rank and has, per microbatch, one F and either one B or one I and one W, in
// that order; R, E, S, T and G likewise where they belong; and the lists, run in order, finish. An
// overlapped pair is one node: it starts when the inputs of both members are there.
// Everything takes time and memory linear in the number of passes that are there, also when the
// schedule claims to have many more.

namespace vocabpipe {

namespace {

using enum Op;

constexpr uint16_t bit(Op op) {
    return static_cast<uint16_t>(1U << static_cast<unsigned>(op));
}

bool gives_input_gradient(Op op) {
    return op == B || op == I;
}

/// The same pass, whether in a pair or not.
bool same(const Pass& a, const Pass& b) {
    return a.op == b.op && a.stage == b.stage && a.microbatch == b.microbatch;
}

std::string with_letter(Op op, int stage, int64_t microbatch) {
    return to_string(Pass{op, static_cast<uint16_t>(stage), static_cast<uint32_t>(microbatch)});
}

Violation of_schedule(std::string reason) {
    return {-1, -1, "", std::move(reason)};
}

std::optional<Violation> check_shard_map(const ShardMap& map, const char* name, int ranks) {
    const auto fault = [&](const std::string& what) {
        return of_schedule(std::string(name) + " shard map: " + what);
    };
    if (map.first_row.size() != static_cast<size_t>(ranks) + 1) {
        return fault("has " + std::to_string(map.first_row.size()) + " entries, " +
                     std::to_string(ranks) + " ranks need " + std::to_string(ranks + 1));
    }
    if (map.first_row.front() != 0) {
        return fault("starts at row " + std::to_string(map.first_row.front()) + ", not at 0");
    }
    for (int rank = 0; rank < ranks; ++rank) {
        if (map.end(rank) < map.begin(rank)) {
            return fault("rank " + std::to_string(rank) + " ends at row " +
                         std::to_string(map.end(rank)) + ", before its first row " +
                         std::to_string(map.begin(rank)));
        }
    }
    return std::nullopt;
}

std::optional<Violation> check_shape(const Schedule& schedule) {
    const auto at_least_one = [](const char* what, int value) {
        return of_schedule(std::string(what) + " is " + std::to_string(value) +
                           ", must be at least 1");
    };
    if (schedule.ranks < 1) return at_least_one("ranks", schedule.ranks);
    if (schedule.stages < 1) return at_least_one("stages", schedule.stages);
    if (schedule.microbatches < 1) return at_least_one("microbatches", schedule.microbatches);
    if (schedule.stages > std::numeric_limits<uint16_t>::max()) {
        return of_schedule("stages is " + std::to_string(schedule.stages) +
                           ", must be at most 65535");
    }
    if (schedule.passes.size() != static_cast<size_t>(schedule.ranks)) {
        return of_schedule(std::to_string(schedule.passes.size()) + " lists of passes for " +
                           std::to_string(schedule.ranks) + " ranks");
    }
    if (schedule.rank_of_stage.size() != static_cast<size_t>(schedule.stages)) {
        return of_schedule("rank_of_stage has " + std::to_string(schedule.rank_of_stage.size()) +
                           " entries for " + std::to_string(schedule.stages) + " stages");
    }
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const int rank = schedule.rank_of_stage[static_cast<size_t>(stage)];
        if (rank < 0 || rank >= schedule.ranks) {
            return of_schedule("stage " + std::to_string(stage) + " is on rank " +
                               std::to_string(rank) + ", ranks are 0 to " +
                               std::to_string(schedule.ranks - 1));
        }
    }
    if (auto fault = check_shard_map(schedule.input, "input", schedule.ranks)) return fault;
    if (auto fault = check_shard_map(schedule.output, "output", schedule.ranks)) return fault;
    if (schedule.barriers > Barriers::two) return of_schedule("barriers is not a known kind");
    return std::nullopt;
}

/// A line is what gets one forward-like and one backward-like pass per microbatch: a stage (F and
/// B, or I and W; perhaps an R between them), the input shard of a rank (E and G), or its output
/// shard (S and T).
struct Line {
    Op forward;
    Op backward;
    int stage;  ///< 0 where the passes have none
    int rank;
};

/// Whether every pass is there once, on its rank, and after what it needs on its own rank.
class Structure {
public:
    /// The schedule must have passed check_shape.
    explicit Structure(const Schedule& schedule)
        : schedule_(schedule),
          microbatches_(schedule.microbatches),
          forward_only_(schedule.forward_only()),
          input_line_(static_cast<size_t>(schedule.ranks), -1),
          output_line_(static_cast<size_t>(schedule.ranks), -1) {
        for (int stage = 0; stage < schedule.stages; ++stage) {
            lines_.push_back({F, B, stage, schedule.rank_of_stage[static_cast<size_t>(stage)]});
        }
        for (int rank = 0; rank < schedule.ranks; ++rank) {
            if (schedule.input.rows(rank) > 0) {
                input_line_[static_cast<size_t>(rank)] = static_cast<int>(lines_.size());
                lines_.push_back({E, G, 0, rank});
            }
            if (schedule.output.rows(rank) > 0) {
                output_line_[static_cast<size_t>(rank)] = static_cast<int>(lines_.size());
                lines_.push_back({S, T, 0, rank});
            }
        }
        for (const std::vector<Pass>& list : schedule.passes) total_ += list.size();
    }

    std::optional<Violation> violation() {
        // With fewer passes than there must be forwards there is no need for a table, which might
        // be large; with enough, the table is no larger than the lists.
        const bool too_few = lines_.size() * static_cast<size_t>(microbatches_) > total_;
        if (too_few) return forward_missing_by_count();
        seen_.assign(lines_.size() * static_cast<size_t>(microbatches_), 0);
        for (int rank = 0; rank < schedule_.ranks; ++rank) {
            const std::vector<Pass>& list = schedule_.passes[static_cast<size_t>(rank)];
            for (size_t index = 0; index < list.size(); ++index) {
                auto reason = fault_of(rank, list[index]);
                if (!reason) reason = fault_of_pair(list, index);
                if (!reason) continue;
                const bool known = list[index].op <= Op::Update;
                return Violation{rank, static_cast<int>(index), known ? to_string(list[index]) : "",
                                 std::move(*reason)};
            }
        }
        return missing();
    }

private:
    int line_of(int rank, const Pass& pass) const {
        if (traits(pass.op).has_stage) return pass.stage;
        const bool input = pass.op == E || pass.op == G;
        return (input ? input_line_ : output_line_)[static_cast<size_t>(rank)];
    }

    uint16_t& seen(int line, uint32_t microbatch) {
        return seen_[static_cast<size_t>(line) * static_cast<size_t>(microbatches_) + microbatch];
    }

    /// What is wrong with a pass on its own or after the passes before it on its rank; notes it.
    std::optional<std::string> fault_of(int rank, const Pass& pass) {
        if (pass.op > Op::Update) return "unknown kind of pass";
        const OpTraits& kind = traits(pass.op);
        if (kind.of_step) {
            return "passes of the step are added by lowering, a schedule has none of its own";
        }
        if (pass.microbatch >= static_cast<uint32_t>(microbatches_)) {
            return "microbatch " + std::to_string(pass.microbatch) + " does not exist, last is " +
                   std::to_string(microbatches_ - 1);
        }
        if (kind.has_stage && pass.stage >= schedule_.stages) {
            return "stage " + std::to_string(pass.stage) + " does not exist, last is " +
                   std::to_string(schedule_.stages - 1);
        }
        if (!kind.has_stage && pass.stage != 0) {
            return "has stage " + std::to_string(pass.stage) + ", passes on a vocabulary shard " +
                   "have none";
        }
        const int line = line_of(rank, pass);
        if (line < 0) {
            const bool input = pass.op == E || pass.op == G;
            return "rank " + std::to_string(rank) + " holds no rows of the " +
                   (input ? "input" : "output") + " layer";
        }
        const int owner = lines_[static_cast<size_t>(line)].rank;
        if (owner != rank) {
            return "stage " + std::to_string(pass.stage) + " is on rank " + std::to_string(owner);
        }
        uint16_t& before = seen(line, pass.microbatch);
        if ((before & bit(pass.op)) != 0) return "appears twice";
        const auto other = [&](Op op) { return with_letter(op, pass.stage, pass.microbatch); };
        if (pass.op == B && (before & bit(I)) != 0) {
            return "is a full backward next to " + other(I) + "; a microbatch has B, or I and W";
        }
        if ((pass.op == I || pass.op == W) && (before & bit(B)) != 0) {
            return "is half a backward next to " + other(B) + "; a microbatch has B, or I and W";
        }
        if (const Op needed = needed_on_its_rank(pass.op); needed != pass.op) {
            if ((before & bit(needed)) == 0) {
                return "needs " + other(needed) + ", which is not among the passes before it";
            }
        }
        if (pass.op == R) {
            for (const Op user : {B, I}) {
                if ((before & bit(user)) == 0) continue;
                return "comes after " + other(user) + ", which needs what it recomputes";
            }
            if (forward_only_) return "has no backward that needs what it recomputes";
        }
        if (pass.op == G && forward_only_) return "has no backward to take its gradient from";
        before |= bit(pass.op);
        return std::nullopt;
    }

    /// What is wrong with the pair that a pass opens.
    static std::optional<std::string> fault_of_pair(const std::vector<Pass>& list, size_t index) {
        const Pass& first = list[index];
        if (!first.with_next) return std::nullopt;
        if (index + 1 == list.size()) return "opens an overlapped pair, but no pass follows";
        const Pass& second = list[index + 1];
        if (second.op > Op::Update) return std::nullopt;  // reported at its own position
        const std::string pair = "is paired with " + to_string(second);
        if (second.with_next) return pair + ", which opens a pair of its own";
        const bool forward_and_backward = (first.op == F && gives_input_gradient(second.op)) ||
                                          (gives_input_gradient(first.op) && second.op == F);
        if (!forward_and_backward) return pair + "; a pair is one F and one B or I";
        // Every backward of a microbatch needs every forward of it, directly or through others.
        if (first.microbatch == second.microbatch) {
            return pair + ", and one needs the other; a pair has two microbatches";
        }
        return std::nullopt;
    }

    static Op needed_on_its_rank(Op op) {
        switch (op) {
            case B:
            case I:
            case R:
                return F;
            case W:
                return I;
            case T:
                return S;
            case G:
                return E;
            default:
                return op;
        }
    }

    Violation missing_pass(const Line& line, Op op, int64_t microbatch) const {
        const std::string who = traits(op).has_stage ? "stage " + std::to_string(line.stage)
                                : op == E || op == G ? "a rank with input rows"
                                                     : "a rank with output rows";
        return {line.rank, -1, with_letter(op, line.stage, microbatch),
                "is missing; " + who + " needs one per microbatch"};
    }

    std::optional<Violation> missing() {
        for (size_t l = 0; l < lines_.size(); ++l) {
            const Line& line = lines_[l];
            for (uint32_t j = 0; j < static_cast<uint32_t>(microbatches_); ++j) {
                const uint16_t there = seen(static_cast<int>(l), j);
                if ((there & bit(line.forward)) == 0) return missing_pass(line, line.forward, j);
                if (forward_only_) continue;
                if (line.backward == B && (there & bit(I)) != 0) {
                    if ((there & bit(W)) == 0) return missing_pass(line, W, j);
                } else if ((there & bit(line.backward)) == 0) {
                    return missing_pass(line, line.backward, j);
                }
            }
        }
        return std::nullopt;
    }

    /// There are fewer passes than forwards are needed, so some line has fewer than m of them.
    Violation forward_missing_by_count() const {
        std::vector<int64_t> forwards(lines_.size(), 0);
        const auto forward_line = [&](int rank, const Pass& pass) {
            if (pass.op != F && pass.op != E && pass.op != S) return -1;
            return pass.op == F && pass.stage >= schedule_.stages ? -1 : line_of(rank, pass);
        };
        const auto each_forward = [&](auto&& visit) {
            for (int rank = 0; rank < schedule_.ranks; ++rank) {
                for (const Pass& pass : schedule_.passes[static_cast<size_t>(rank)]) {
                    if (const int line = forward_line(rank, pass); line >= 0) visit(line, pass);
                }
            }
        };
        each_forward([&](int line, const Pass&) { ++forwards[static_cast<size_t>(line)]; });
        const auto few = std::find_if(forwards.begin(), forwards.end(),
                                      [&](int64_t count) { return count < microbatches_; });
        const auto lacking = static_cast<int>(few - forwards.begin());
        std::vector<bool> there(static_cast<size_t>(*few) + 1, false);
        each_forward([&](int line, const Pass& pass) {
            if (line == lacking && pass.microbatch < there.size()) there[pass.microbatch] = true;
        });
        const Line& line = lines_[static_cast<size_t>(lacking)];
        return missing_pass(line, line.forward,
                            std::find(there.begin(), there.end(), false) - there.begin());
    }

    const Schedule& schedule_;
    int microbatches_;
    bool forward_only_;
    std::vector<Line> lines_;  ///< stages first
    std::vector<int> input_line_, output_line_;
    size_t total_ = 0;
    std::vector<uint16_t> seen_;  ///< [line][microbatch], one bit per Op
};

/// Runs the lists of a schedule with a sound structure: each rank in order, waiting for inputs.
/// What a pass waits for on other ranks is always one thing, called an event here.
class Execution {
public:
    explicit Execution(const Schedule& schedule)
        : schedule_(schedule),
          stages_(schedule.stages),
          microbatches_(static_cast<size_t>(schedule.microbatches)),
          remaining_((2 * static_cast<size_t>(stages_) + 3) * microbatches_, 1),
          first_waiter_(remaining_.size(), -1),
          next_waiter_(static_cast<size_t>(schedule.ranks), -1),
          position_(static_cast<size_t>(schedule.ranks), 0) {
        const auto inputs = static_cast<int>(schedule.input.owners().size());
        const auto outputs = static_cast<int>(schedule.output.owners().size());
        for (uint32_t j = 0; j < microbatches_; ++j) {
            remaining_[all(E, j)] = inputs;
            remaining_[all(S, j)] = remaining_[all(T, j)] = outputs;
        }
    }

    std::optional<Violation> violation() {
        std::vector<int> ready;
        for (int rank = schedule_.ranks - 1; rank >= 0; --rank) ready.push_back(rank);
        while (!ready.empty()) {
            const int rank = ready.back();
            ready.pop_back();
            advance(rank, ready);
        }
        for (int rank = 0; rank < schedule_.ranks; ++rank) {
            if (!finished(rank)) return deadlock(rank);
        }
        return std::nullopt;
    }

private:
    static constexpr size_t kNothing = static_cast<size_t>(-1);

    size_t forward(int stage, uint32_t j) const {
        return static_cast<size_t>(stage) * microbatches_ + j;
    }
    size_t backward(int stage, uint32_t j) const { return forward(stages_ + stage, j); }
    /// The E, S or T of all ranks that have one.
    size_t all(Op op, uint32_t j) const {
        return forward(2 * stages_ + (op == E ? 0 : op == S ? 1 : 2), j);
    }

    /// What the pass waits for. F before its own B and the like are the structure's business.
    size_t needed(const Pass& pass) const {
        const uint32_t j = pass.microbatch;
        switch (pass.op) {
            case F:
                return pass.stage == 0 ? all(E, j) : forward(pass.stage - 1, j);
            case B:
            case I:
                if (pass.stage < stages_ - 1) return backward(pass.stage + 1, j);
                // The last stage's output gradient is formed in S (one barrier) or in T.
                return all(schedule_.barriers == Barriers::one ? S : T, j);
            case S:
                return forward(stages_ - 1, j);
            case T:
                return all(S, j);
            case G:
                return backward(0, j);
            default:
                return kNothing;
        }
    }

    size_t produced(const Pass& pass) const {
        switch (pass.op) {
            case F:
                return forward(pass.stage, pass.microbatch);
            case B:
            case I:
                return backward(pass.stage, pass.microbatch);
            case E:
            case S:
            case T:
                return all(pass.op, pass.microbatch);
            default:
                return kNothing;
        }
    }

    const std::vector<Pass>& list(int rank) const {
        return schedule_.passes[static_cast<size_t>(rank)];
    }
    size_t position(int rank) const { return position_[static_cast<size_t>(rank)]; }
    bool finished(int rank) const { return position(rank) == list(rank).size(); }
    const Pass& next(int rank) const { return list(rank)[position(rank)]; }

    /// One pass, or the two of a pair.
    std::span<const Pass> next_node(int rank) const {
        return std::span(list(rank)).subspan(position(rank), next(rank).with_next ? 2 : 1);
    }
    /// What the next node still waits for.
    size_t unmet(int rank) const {
        for (const Pass& pass : next_node(rank)) {
            const size_t event = needed(pass);
            if (event != kNothing && remaining_[event] > 0) return event;
        }
        return kNothing;
    }

    void advance(int rank, std::vector<int>& ready) {
        while (!finished(rank)) {
            if (const size_t event = unmet(rank); event != kNothing) {
                next_waiter_[static_cast<size_t>(rank)] = first_waiter_[event];
                first_waiter_[event] = rank;
                return;
            }
            const std::span<const Pass> node = next_node(rank);
            position_[static_cast<size_t>(rank)] += node.size();
            for (const Pass& pass : node) complete(pass, ready);
        }
    }

    void complete(const Pass& pass, std::vector<int>& ready) {
        const size_t done = produced(pass);
        if (done == kNothing || --remaining_[done] > 0) return;
        for (int waiter = first_waiter_[done]; waiter >= 0;
             waiter = next_waiter_[static_cast<size_t>(waiter)]) {
            ready.push_back(waiter);
        }
    }

    struct Located {
        Pass pass;
        int rank;
    };

    /// The pass that an unmet event lacks; of several ranks the first. Only for the error message.
    Located lacking(size_t event) const {
        const auto row = static_cast<int>(event / microbatches_);
        const auto j = static_cast<uint32_t>(event % microbatches_);
        if (row < 2 * stages_) {
            const int stage = row % stages_;
            const int rank = schedule_.rank_of_stage[static_cast<size_t>(stage)];
            Pass pass{row < stages_ ? F : B, static_cast<uint16_t>(stage), j};
            const Pass half{I, static_cast<uint16_t>(stage), j};
            if (pass.op == B && find(rank, 0, half) != list(rank).end()) pass = half;
            return {pass, rank};
        }
        const Pass pass{row == 2 * stages_ ? E : row == 2 * stages_ + 1 ? S : T, 0, j};
        for (const int rank : (pass.op == E ? schedule_.input : schedule_.output).owners()) {
            if (find(rank, position(rank), pass) != list(rank).end()) return {pass, rank};
        }
        return {pass, -1};
    }

    std::vector<Pass>::const_iterator find(int rank, size_t from, const Pass& pass) const {
        return std::find_if(list(rank).begin() + static_cast<std::ptrdiff_t>(from),
                            list(rank).end(), [&](const Pass& other) { return same(pass, other); });
    }

    /// Follows what the blocked ranks wait for, until a rank comes up again: that closes the cycle.
    Violation deadlock(int first) const {
        constexpr int kLongest = 16;  // ranks named in one message
        std::string reason;
        if (next(first).with_next) {
            reason = "is paired with " + to_string(next_node(first).back()) + " and ";
        }
        std::vector<bool> visited(static_cast<size_t>(schedule_.ranks), false);
        int rank = first;
        for (int named = 0;; ++named) {
            visited[static_cast<size_t>(rank)] = true;
            const auto [pass, owner] = lacking(unmet(rank));
            reason += "waits for " + to_string(pass) + " on rank " + std::to_string(owner);
            if (const auto node = next_node(owner); !same(node.front(), pass)) {
                reason += same(node.back(), pass) ? " paired with " : " after ";
                reason += to_string(node.front()) + " there";
            } else if (node.size() > 1) {
                reason += " paired with " + to_string(node.back()) + " there";
            }
            if (visited[static_cast<size_t>(owner)]) return at(first, reason + ": a deadlock");
            if (named == kLongest) return at(first, reason + ", and so on: a deadlock");
            reason += ", which ";
            rank = owner;
        }
    }

    Violation at(int rank, std::string reason) const {
        return {rank, static_cast<int>(position(rank)), to_string(next(rank)), std::move(reason)};
    }

    const Schedule& schedule_;
    int stages_;
    size_t microbatches_;
    std::vector<int> remaining_;  ///< [event], passes still to come
    std::vector<int> first_waiter_, next_waiter_;
    std::vector<size_t> position_;
};

}  // namespace

std::string Violation::message() const {
    std::string where = rank < 0 ? "schedule" : "rank " + std::to_string(rank);
    if (index >= 0) where += ", position " + std::to_string(index);
    if (!pass.empty()) where += ", " + pass;
    return where + (pass.empty() ? ": " : " ") + reason;
}

std::optional<Violation> find_violation(const Schedule& schedule) {
    if (auto violation = check_shape(schedule)) return violation;
    if (auto violation = Structure(schedule).violation()) return violation;
    return Execution(schedule).violation();
}

void validate(const Schedule& schedule) {
    if (auto violation = find_violation(schedule)) throw ScheduleError(*std::move(violation));
}

}  // namespace vocabpipe
