// SPDX-License-Identifier: Apache-2.0
// Why the bound holds. Give every edge e a number l(e) from 0 to 1. For any set T, an edge between
// v and w satisfies
//
//     [v in T and w in T]  >=  l(e) ([v in T] + [w in T] - 1),
//
// as the right side is -l(e), 0 or l(e) for none, one or both ends in T. So for T of k samples
//
//     f(T)  <=  beta sum over e of l(e) s(e)  +  sum over v in T of weight(v)
//     weight(v) = alpha u(v) - beta sum over e at v of l(e) s(e)
//
// and the second sum is at most that of the k largest weights. This needs no assumption about f.
//
// Which l is good follows from a game: one player chooses l and wants the bound small, the other
// one chooses the k samples with the largest weights. Both answer to what the other one has done on
// average so far ("fictitious play", Brown 1951): a sample was among the best in `times` of t
// steps, beginning with the choice itself; the answer is 1 for the edges whose ends were so in more
// than t steps together, and l is the mean of all answers. The sums below are t times those above,
// so all of them are integers.
#include "src/select/certificate.hpp"

#include "src/select/deliver.hpp"
#include "src/select/radix_select.hpp"

#include <algorithm>
#include <limits>
#include <span>

namespace vocabpipe {

namespace {

/// The k largest weights of all samples.
struct BestWeights {
    int64_t least = 0;
    WideSum sum = 0;
};

class CertificateSteps {
public:
    CertificateSteps(SelectContext& context, SelectionState& state, int64_t k,
                     const ReadUtilities& utilities)
        : context_(context),
          weights_(state),
          k_(k),
          utilities_(utilities),
          lease_(context.memory, certificate_bytes(context.blocks, state.size()),
                 "the certificate"),
          times_(state.size(), state.block_length(), context.blocks.folder),
          rows_(context.graph) {
        for (int64_t v = state.first(); v < state.last(); ++v) {
            times_.edit(v - state.first()) = state.is_in(v) ? 1 : 0;
            weights_.edit_u_max(v) = 0;
        }
    }

    [[nodiscard]] Certificate run(int64_t steps) {
        Certificate certificate;
        WideSum least = 0;
        for (int64_t step = 1; step <= steps; ++step) {
            context_.report("certificate", step - 1, steps);
            add_utilities();
            if (step == 1) least = best().sum;  // l(e) = 0 for every edge
            add_answers(step);
            if (step == 1) certificate.lowering = lowering();
            const BestWeights found = best();
            const WideSum bound = context_.objective.beta * (ends_ / 2) + found.sum;
            least = std::min(least, bound / step - (bound % step < 0 ? 1 : 0));
            if (step == steps) break;  // `times` of as many steps as there may be fit in a byte
            for (int64_t v = weights_.first(); v < weights_.last(); ++v) {
                if (weights_.u_max(v) >= found.least) ++times_.edit(v - weights_.first());
            }
        }
        if (least >= std::numeric_limits<int64_t>::min() &&
            least <= std::numeric_limits<int64_t>::max()) {
            certificate.bound = static_cast<int64_t>(least);
        }
        return certificate;
    }

private:
    void add_utilities() {
        context_.agree([&] {
            for_each_utility(weights_, utilities_, [&](int64_t v, int32_t utility) {
                weights_.edit_u_max(v) += context_.objective.alpha * utility;
            });
        });
    }

    /// Takes the edges whose answer is 1 in this step from the weights of their ends.
    void add_answers(int64_t step) {
        const Ownership& owners = context_.owners;
        int64_t at = weights_.first();
        WideSum similar = 0;
        const auto counts = [&](int64_t v, uint8_t times_of_other) {
            return int64_t{times(v)} + times_of_other > step;
        };
        const auto take = [&](int64_t v, int32_t similarity) {
            weights_.edit_u_max(v) -= context_.objective.beta * similarity;
            similar += similarity;
        };
        const auto produce = [&](Outbox<EdgeOfBest>& outbox) {
            while (at < weights_.last() && times(at) == 0) ++at;
            if (at == weights_.last()) return false;
            const GraphRow row = rows_.at(at);
            for (size_t i = 0; i < row.degree(); ++i) {
                const int64_t other = row.neighbours[i];
                const int32_t similarity = row.similarities[i];
                if (!times_.holds(other - weights_.first())) {
                    outbox.add(
                        owners.owner_of(other),
                        {.node = PackedId(other), .times = times(at), .similarity = similarity});
                } else if (counts(at, times(other))) {
                    take(at, similarity);
                }
            }
            return ++at < weights_.last();
        };
        deliver_all<EdgeOfBest>(context_, weights_, produce, [&](std::span<const EdgeOfBest> all) {
            for (const EdgeOfBest& one : all) {
                const int64_t node = one.node.value();
                if (counts(node, one.times)) take(node, one.similarity);
            }
        });
        ends_ += wide_sum_over_ranks(context_.world, similar);
    }

    [[nodiscard]] BestWeights best() const {
        BestWeights found{.least = kth_largest(context_.world, k_, [&](const auto& use) {
                              for (int64_t v = weights_.first(); v < weights_.last(); ++v) {
                                  use(weights_.u_max(v));
                              }
                          })};
        int64_t larger = 0;
        for (int64_t v = weights_.first(); v < weights_.last(); ++v) {
            if (weights_.u_max(v) <= found.least) continue;
            found.sum += weights_.u_max(v);
            ++larger;
        }
        found.sum = wide_sum_over_ranks(context_.world, found.sum) +
                    WideSum{k_ - sum_over_ranks(context_.world, larger)} * found.least;
        return found;
    }

    /// After the first step, the weight of a chosen sample is what f loses without it.
    [[nodiscard]] int64_t lowering() const {
        int64_t count = 0;
        for (int64_t v = weights_.first(); v < weights_.last(); ++v) {
            if (weights_.is_in(v) && weights_.u_max(v) < 0) ++count;
        }
        return sum_over_ranks(context_.world, count);
    }

    [[nodiscard]] uint8_t times(int64_t node) const { return times_[node - weights_.first()]; }

    SelectContext& context_;
    SelectionState& weights_;  ///< those of all steps together, in place of upper bounds
    int64_t k_;
    const ReadUtilities& utilities_;
    MemoryLease lease_;
    BlockedArray<uint8_t> times_;
    GraphRows rows_;
    WideSum ends_ = 0;  ///< similarities of the answers of all steps, once for each of two ends
};

/// Steps whose weights 64 bits hold: each adds less than 2^31 alpha and takes less than `longest`
/// times 2^31 beta, or 2^61, beyond which graphs are refused.
int64_t steps_that_fit(const PairwiseObjective& objective, int64_t longest_row) {
    const WideSum utility = WideSum{objective.alpha} << 31;
    const WideSum edges = std::min(WideSum{objective.beta} * longest_row << 31, WideSum{1} << 61);
    const WideSum most = std::max<WideSum>({utility, edges, 1});
    return static_cast<int64_t>(
        std::clamp<WideSum>((WideSum{1} << 62) / most, 1, kMostCertificateSteps));
}

}  // namespace

Certificate certify(SelectContext& context, SelectionState& state, int64_t k,
                    const ReadUtilities& utilities, int64_t steps, int64_t longest_row) {
    if (k == 0) return {.bound = 0};
    std::optional<CertificateSteps> work;
    context.agree([&] { work.emplace(context, state, k, utilities); });
    return work->run(std::min(steps, steps_that_fit(context.objective, longest_row)));
}

}  // namespace vocabpipe
