// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/sampling.hpp"

#include "src/runtime/gathered.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// Maps a logit to a key of the same order; -0 becomes 0.
uint32_t key_of(float logit) {
    const auto bits = std::bit_cast<uint32_t>(logit + 0.0F);
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

/// The likeliest token of a rank.
struct Likeliest {
    float logit = -std::numeric_limits<float>::infinity();
    int32_t token = std::numeric_limits<int32_t>::max();
    int32_t finite = 1;
};

Likeliest likeliest_of(const LogitsShard& shard) {
    Likeliest found;
    for (size_t i = 0; i < shard.logits.size(); ++i) {
        const float logit = shard.logits[i];
        if (!std::isfinite(logit)) found.finite = 0;
        if (logit > found.logit) {
            found.logit = logit;
            found.token = static_cast<int32_t>(shard.first + static_cast<int64_t>(i));
        }
    }
    return found;
}

/// The likeliest token over all ranks; in a tie, the one with the smallest id.
Likeliest likeliest_of(const std::vector<Likeliest>& ranks) {
    Likeliest found;
    for (const Likeliest& rank : ranks) {
        if (rank.finite == 0) {
            throw AgreedError(ExitCode::wrong_values,
                              "the model's logits are not all finite: its training has diverged; "
                              "load an earlier step");
        }
        if (rank.logit > found.logit || (rank.logit == found.logit && rank.token < found.token)) {
            found = rank;
        }
    }
    return found;
}

struct Amount {
    uint64_t tokens = 0;
    uint64_t mass = 0;  ///< probability relative to the likeliest token, in 2^-40

    Amount& operator+=(const Amount& other) {
        tokens += other.tokens;
        mass += other.mass;
        return *this;
    }
};

/// A token, with the sum of all tokens before it and itself.
struct Place {
    int32_t token = 0;
    Amount through;  ///< including the token
};

/// All tokens in falling order of their logits; each rank holds its own.
class Order {
public:
    /// A token's mass is exp((logit - largest) / temperature).
    Order(Communicator& world, const LogitsShard& mine, float largest, double temperature)
        : world_(world), first_(mine.first) {
        for (const float logit : mine.logits) {
            const double p = std::exp((static_cast<double>(logit) - largest) / temperature);
            entries_.push_back({key_of(logit), static_cast<uint64_t>(std::llround(p * kOne))});
        }
    }

    [[nodiscard]] uint64_t total_mass() {
        uint64_t mass = 0;
        for (const Entry& entry : entries_) mass += entry.mass;
        uint64_t total = 0;
        for (const uint64_t part : gathered_values(world_, mass)) total += part;
        return total;
    }

    /// The first token whose cumulative `amount.*of` exceeds `target`, which must be less than the
    /// total. Collective.
    [[nodiscard]] Place find(uint64_t Amount::*of, uint64_t target) {
        Amount before;
        uint32_t prefix = 0;  // known leading bits of the key
        std::vector<Histogram> ranks;
        size_t bin = 0;
        for (int shift = 24; shift >= 0; shift -= 8) {
            ranks = gathered_values(world_, histogram(prefix, shift));
            for (bin = kBins - 1; bin > 0; --bin) {
                Amount next = before;
                for (const Histogram& rank : ranks) next += rank[bin];
                if (next.*of > target) break;
                before = next;
            }
            prefix |= static_cast<uint32_t>(bin) << shift;
        }
        return among_equals(of, target, before, prefix, ranks, bin);
    }

private:
    static constexpr double kOne = static_cast<double>(uint64_t{1} << 40);
    static constexpr size_t kBins = 256;
    using Histogram = std::array<Amount, kBins>;
    struct Entry {
        uint32_t key;
        uint64_t mass;
    };

    /// Histogram over the byte of the key at `shift`, of the tokens whose higher bits equal
    /// `prefix`.
    [[nodiscard]] Histogram histogram(uint32_t prefix, int shift) const {
        Histogram bins{};
        for (const Entry& entry : entries_) {
            if (shift < 24 && (entry.key ^ prefix) >> (shift + 8) != 0) continue;
            bins[entry.key >> shift & (kBins - 1)] += {1, entry.mass};
        }
        return bins;
    }

    /// Finds the token among equal keys: they have equal masses, and ranks hold ids in ascending
    /// order.
    [[nodiscard]] Place among_equals(uint64_t Amount::*of, uint64_t target, const Amount& before,
                                     uint32_t key, const std::vector<Histogram>& ranks,
                                     size_t bin) {
        Amount all;
        for (const Histogram& rank : ranks) all += rank[bin];
        const Amount one{1, all.mass / all.tokens};
        const uint64_t skipped = (target - before.*of) / one.*of;  // of the equal ones
        int32_t token = -1;
        uint64_t earlier = 0;
        for (int rank = 0; rank < world_.rank(); ++rank) {
            earlier += ranks[static_cast<size_t>(rank)][bin].tokens;
        }
        for (size_t i = 0; i < entries_.size(); ++i) {
            if (entries_[i].key != key) continue;
            if (earlier++ == skipped)
                token = static_cast<int32_t>(first_ + static_cast<int64_t>(i));
        }
        const std::vector<int32_t> found = gathered_values(world_, token);
        return {*std::ranges::max_element(found),
                {before.tokens + skipped + 1, before.mass + (skipped + 1) * one.mass}};
    }

    Communicator& world_;
    int64_t first_;
    std::vector<Entry> entries_;
};

}  // namespace

std::vector<int32_t> likeliest_tokens(Communicator& world, const LogitsShard& mine, int64_t rows) {
    const size_t columns = mine.logits.size() / static_cast<size_t>(rows);
    std::vector<Likeliest> of_rows;
    for (size_t row = 0; std::cmp_less(row, rows); ++row) {
        of_rows.push_back(
            likeliest_of(LogitsShard{mine.logits.subspan(row * columns, columns), mine.first}));
    }
    const auto ranks = gathered_lists(world, std::span<const Likeliest>(of_rows));
    std::vector<int32_t> tokens;
    for (size_t row = 0; row < of_rows.size(); ++row) {
        std::vector<Likeliest> of_row;
        for (const std::vector<Likeliest>& rank : ranks) of_row.push_back(rank[row]);
        tokens.push_back(likeliest_of(of_row).token);
    }
    return tokens;
}

int32_t sample(Communicator& world, const LogitsShard& mine, const SamplingOptions& options,
               double u) {
    const Likeliest best = likeliest_of(gathered_values(world, likeliest_of(mine)));
    if (options.temperature <= 0 || options.top_k == 1) return best.token;
    Order order(world, mine, best.logit, options.temperature);
    uint64_t kept = order.total_mass();
    if (options.top_k > 0) {
        uint64_t tokens = 0;
        for (const uint64_t part : gathered_values(world, uint64_t{mine.logits.size()}))
            tokens += part;
        const auto k = static_cast<uint64_t>(options.top_k);
        if (k < tokens) kept = order.find(&Amount::tokens, k - 1).through.mass;
    }
    if (options.top_p < 1) {
        // The fewest tokens with at least this mass, but at least one.
        const double wanted = options.top_p * static_cast<double>(kept);
        const auto least = static_cast<uint64_t>(std::ceil(wanted));
        const uint64_t target = std::min(least > 0 ? least - 1 : 0, kept - 1);
        kept = std::min(kept, order.find(&Amount::mass, target).through.mass);
    }
    const auto target = static_cast<uint64_t>(u * static_cast<double>(kept));
    return order.find(&Amount::mass, std::min(target, kept - 1)).token;
}

}  // namespace vocabpipe
