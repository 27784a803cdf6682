// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/program.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Integer costs in nanoseconds (or any unit: only consistency matters). Must be identical on every
/// rank, because the global order is made from them.
class CostModel {
public:
    virtual ~CostModel() = default;
    [[nodiscard]] virtual int64_t pass_ns(int rank, const Pass& pass) const = 0;
    /// Time from the moment every participant is ready to the moment every participant is done;
    /// `bytes` is what the busiest participant sends.
    [[nodiscard]] virtual int64_t transfer_ns(Do what, const Group& group, int64_t bytes) const = 0;
    /// combine and fold; `bytes` is what they read and write.
    [[nodiscard]] virtual int64_t local_ns(Do what, int64_t bytes) const = 0;
};

/// Costs by table: transformer passes by stage, vocabulary passes by rank; links by latency and
/// rate.
class TableCosts final : public CostModel {
public:
    using OpCosts = std::array<int64_t, kOpTraits.size()>;
    std::vector<OpCosts> stage_ns;  ///< [stage][op]: F, B, I, W
    std::vector<OpCosts> rank_ns;   ///< [rank][op]: E, G, S, T, Reduce, Norm, Update
    int64_t latency_ns = 0;         ///< per message
    double bytes_per_ns = 0;        ///< per link; 0: infinitely fast
    double local_bytes_per_ns = 0;  ///< combine and fold; 0: infinitely fast

    /// The same costs for every stage and rank: forward, backward = I + W, and one cost for E, G,
    /// S, T.
    [[nodiscard]] static TableCosts uniform(int ranks, int stages, int64_t forward,
                                            int64_t backward, int64_t vocabulary_pass);

    [[nodiscard]] int64_t pass_ns(int rank, const Pass& pass) const override;
    [[nodiscard]] int64_t transfer_ns(Do what, const Group& group, int64_t bytes) const override;
    [[nodiscard]] int64_t local_ns(Do what, int64_t bytes) const override;
};

}  // namespace vocabpipe
