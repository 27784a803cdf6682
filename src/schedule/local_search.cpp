// SPDX-License-Identifier: Apache-2.0
// A move shifts one pass within its rank's list; then order, memory and the makespan of the whole
// schedule are checked again. Since that happens hundreds of thousands of times a second,
// everything that a check reads is in flat tables, made once.
#include "vocabpipe/local_search.hpp"

#include "src/schedule/pass_inputs.hpp"
#include "vocabpipe/pass_times.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <utility>

namespace vocabpipe {

namespace {

using enum Op;

/// The schedule, with tables of everything that the search reads often.
class Search {
public:
    Search(const Schedule& schedule, const PassCosts& costs, const LocalSearchOptions& options)
        : random_(options.seed), lists_(schedule.passes.size()) {
        const PassInputs inputs(schedule, costs);
        const std::vector<int> peaks = peak_chunks(schedule);
        for (int rank = 0; rank < schedule.ranks; ++rank) {
            const auto r = static_cast<size_t>(rank);
            std::set<std::pair<uint16_t, uint32_t>> again;  // stage, microbatch
            for (const Pass& pass : schedule.passes[r]) {
                if (pass.op == R) again.emplace(pass.stage, pass.microbatch);
                const bool last = pass.op == B || pass.op == W;
                const PassInputs::Need need = inputs.need(rank, pass);
                lists_[r].push_back(static_cast<uint32_t>(passes_.size()));
                passes_.push_back({pass, need.event, inputs.produced(pass), need.latency,
                                   costs(rank, pass),
                                   last && again.contains({pass.stage, pass.microbatch})});
            }
            const Alive peak = peak_of(lists_[r]);
            limit_.push_back({.chunks = options.chunk_limit > 0 ? options.chunk_limit : peaks[r],
                              .recomputed = peak.recomputed,
                              .exp_logits = peak.exp_logits});
        }
        for (size_t e = 0; e < inputs.events(); ++e) {
            start_.push_back({0, inputs.producers(e), kNobody});
        }
        for (size_t rank = 0; rank < lists_.size(); ++rank) {
            if (lists_[rank].size() > 1) movable_.push_back(rank);
        }
        next_waiter_.resize(lists_.size());
        position_.resize(lists_.size());
        free_at_.resize(lists_.size());
    }

    /// Simulated annealing: accepts a longer schedule with a probability that falls over the moves.
    void run(int64_t moves, const std::function<void(int64_t)>& progress) {
        if (movable_.empty()) moves = 0;
        int64_t current = makespan();
        best_ = lists_;
        int64_t best = current;
        const double hot = 0.02 * static_cast<double>(current);
        std::uniform_real_distribution<double> chance(0, 1);
        constexpr int64_t kBetween = 1 << 12;
        for (int64_t move = 0; move < moves; ++move) {
            if (progress && move % kBetween == 0) progress(move);
            const double left = 1.0 - static_cast<double>(move) / static_cast<double>(moves);
            const double temperature = hot * left * left * left;
            const auto [rank, from, to] = random_move();
            if (from == to || !allowed(rank, from, to)) continue;
            shift(rank, from, to);
            const int64_t length = fits(rank) ? makespan() : kStuck;
            const double worse = static_cast<double>(length - current);
            const bool accept =
                length != kStuck &&
                (length <= current ||
                 (temperature > 0 && chance(random_) < std::exp(-worse / temperature)));
            if (!accept) {
                shift(rank, to, from);
                continue;
            }
            current = length;
            if (current < best) {
                best = current;
                best_ = lists_;
            }
        }
    }

    void write_best(Schedule& schedule) const {
        for (size_t rank = 0; rank < best_.size(); ++rank) {
            for (size_t i = 0; i < best_[rank].size(); ++i) {
                schedule.passes[rank][i] = passes_[best_[rank][i]].pass;
            }
        }
    }

private:
    static constexpr int kNobody = -1;
    static constexpr int64_t kStuck = std::numeric_limits<int64_t>::max();

    struct Known {
        Pass pass;
        size_t needs;
        size_t makes;
        int64_t latency;
        int64_t cost;
        bool ends_recomputed;  ///< a B or W whose microbatch has an R
    };
    /// Memory in use on a rank.
    struct Alive {
        int chunks = 0;      ///< activations, from F
        int recomputed = 0;  ///< activations that R made again
        int exp_logits = 0;  ///< of S, until T
    };
    struct Event {
        int64_t at;
        int remaining;
        int first_waiter;
    };
    struct Move {
        size_t rank, from, to;
    };

    Move random_move() {
        const size_t rank = movable_[random_() % movable_.size()];
        const size_t size = lists_[rank].size();
        const size_t from = random_() % size;
        const size_t distance = 1 + random_() % (1 + random_() % 12);  // mostly short
        const bool forward = random_() % 2 == 0;
        const size_t to =
            forward ? std::min(size - 1, from + distance) : from - std::min(from, distance);
        return {rank, from, to};
    }

    void shift(size_t rank, size_t from, size_t to) {
        const auto at = lists_[rank].begin();
        const auto f = static_cast<std::ptrdiff_t>(from);
        const auto t = static_cast<std::ptrdiff_t>(to);
        if (from < to) {
            std::rotate(at + f, at + f + 1, at + t + 1);
        } else {
            std::rotate(at + t, at + f, at + f + 1);
        }
    }

    /// Whether the pass may move past those between: none of them depends on it or is needed by it,
    /// and none belongs to a pair.
    [[nodiscard]] bool allowed(size_t rank, size_t from, size_t to) const {
        const std::vector<uint32_t>& list = lists_[rank];
        const Pass& moved = passes_[list[from]].pass;
        const size_t low = std::min(from, to);
        const size_t high = std::max(from, to);
        if (low > 0 && passes_[list[low - 1]].pass.with_next) return false;
        for (size_t i = low; i <= high; ++i) {
            const Pass& other = passes_[list[i]].pass;
            if (other.with_next) return false;
            if (i != from && related(moved, other)) return false;
        }
        return true;
    }
    /// Whether two passes keep their order: those of one microbatch and stage (or shard), and those
    /// of one kind, where swapping would only rename microbatches.
    static bool related(const Pass& a, const Pass& b) {
        const bool both_stages = traits(a.op).has_stage && traits(b.op).has_stage;
        if (both_stages && a.stage == b.stage && a.microbatch == b.microbatch) return true;
        if (!both_stages && a.microbatch == b.microbatch && traits(a.op).vocabulary &&
            traits(b.op).vocabulary) {
            return true;
        }
        return a.op == b.op && a.stage == b.stage;
    }

    [[nodiscard]] bool fits(size_t rank) const {
        const Alive peak = peak_of(lists_[rank]);
        const Alive& limit = limit_[rank];
        return peak.chunks <= limit.chunks && peak.recomputed <= limit.recomputed &&
               peak.exp_logits <= limit.exp_logits;
    }
    [[nodiscard]] Alive peak_of(const std::vector<uint32_t>& list) const {
        Alive alive;
        Alive peak;
        for (const uint32_t id : list) {
            const Known& known = passes_[id];
            const Op op = known.pass.op;
            if (op == F) peak.chunks = std::max(peak.chunks, ++alive.chunks);
            if (op == R) peak.recomputed = std::max(peak.recomputed, ++alive.recomputed);
            if (op == S) peak.exp_logits = std::max(peak.exp_logits, ++alive.exp_logits);
            if (op == B || op == W) --alive.chunks;
            if (known.ends_recomputed) --alive.recomputed;
            if (op == T) --alive.exp_logits;
        }
        return peak;
    }

    int64_t makespan() {
        events_ = start_;
        std::fill(position_.begin(), position_.end(), 0);
        std::fill(free_at_.begin(), free_at_.end(), 0);
        ready_.clear();
        for (size_t rank = 0; rank < lists_.size(); ++rank)
            ready_.push_back(static_cast<int>(rank));
        size_t ran = 0;
        while (!ready_.empty()) {
            const auto rank = static_cast<size_t>(ready_.back());
            ready_.pop_back();
            ran += advance(rank);
        }
        if (ran != passes_.size()) return kStuck;
        // The first start is at 0, because some pass can always start at once.
        return *std::max_element(free_at_.begin(), free_at_.end());
    }

    size_t advance(size_t rank) {
        const std::vector<uint32_t>& list = lists_[rank];
        const size_t begin = position_[rank];
        size_t i = begin;
        int64_t at = free_at_[rank];
        for (; i < list.size(); ++i) {
            const Known& pass = passes_[list[i]];
            if (pass.needs != PassInputs::kNothing) {
                Event& event = events_[pass.needs];
                if (event.remaining > 0) {
                    next_waiter_[rank] = event.first_waiter;
                    event.first_waiter = static_cast<int>(rank);
                    break;
                }
                at = std::max(at, event.at + pass.latency);
            }
            at += pass.cost;
            if (pass.makes == PassInputs::kNothing) continue;
            Event& event = events_[pass.makes];
            event.at = std::max(event.at, at);
            if (--event.remaining > 0) continue;
            for (int waiter = event.first_waiter; waiter != kNobody;
                 waiter = next_waiter_[static_cast<size_t>(waiter)]) {
                ready_.push_back(waiter);
            }
        }
        position_[rank] = i;
        free_at_[rank] = at;
        return i - begin;
    }

    std::mt19937_64 random_;
    std::vector<Known> passes_;
    std::vector<std::vector<uint32_t>> lists_;  ///< [rank] indices into passes_
    std::vector<std::vector<uint32_t>> best_;
    std::vector<size_t> movable_;  ///< ranks with two passes or more
    std::vector<Alive> limit_;     ///< [rank]
    std::vector<Event> start_, events_;
    std::vector<int> next_waiter_, ready_;
    std::vector<size_t> position_;
    std::vector<int64_t> free_at_;
};

}  // namespace

Schedule local_search(const Schedule& schedule, const PassCosts& costs,
                      const LocalSearchOptions& options) {
    Search search(schedule, costs, options);
    search.run(options.moves, options.progress);
    Schedule result = schedule;
    search.write_best(result);
    return result;
}

}  // namespace vocabpipe
