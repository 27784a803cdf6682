// SPDX-License-Identifier: Apache-2.0
#include "src/train/generate/sampling.hpp"

#include "src/runtime/gathered.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace vocabpipe {

namespace {

/// In the order of the numbers; -0 comes as 0.
uint32_t key_of(float logit) {
    const auto bits = std::bit_cast<uint32_t>(logit + 0.0F);
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

/// What a rank knows of the likeliest token.
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

/// Of all ranks; of equally likely tokens that with the smallest id.
Likeliest likeliest_of(const std::vector<Likeliest>& ranks) {
    Likeliest found;
    for (const Likeliest& rank : ranks) {
        if (rank.finite == 0) {
            throw AgreedError(ExitCode::not_finite,
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

/// A token's place: what stands before it, and it.
struct Place {
    int32_t token = 0;
    Amount through;  ///< up to and with it
};

/// All tokens in falling order of their logits, of which each rank sees its own.
class Order {
public:
    /// exp((logit - largest) / temperature) is a token's mass.
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

    /// The first token up to and with which `amount.*of` exceeds `target`, which must be less than
    /// that of all tokens. Collective.
    [[nodiscard]] Place find(uint64_t Amount::*of, uint64_t target) {
        Amount before;
        uint32_t prefix = 0;  // bits of the key that are known
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

    /// By the byte of the key at `shift`, of the tokens whose bits above it are `prefix`'s.
    [[nodiscard]] Histogram histogram(uint32_t prefix, int shift) const {
        Histogram bins{};
        for (const Entry& entry : entries_) {
            if (shift < 24 && (entry.key ^ prefix) >> (shift + 8) != 0) continue;
            bins[entry.key >> shift & (kBins - 1)] += {1, entry.mass};
        }
        return bins;
    }

    /// Tokens of one key have one mass, and ranks hold ids in ascending order.
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
        // The fewest tokens with at least this mass, and one at least.
        const double wanted = options.top_p * static_cast<double>(kept);
        const auto least = static_cast<uint64_t>(std::ceil(wanted));
        const uint64_t target = std::min(least > 0 ? least - 1 : 0, kept - 1);
        kept = std::min(kept, order.find(&Amount::mass, target).through.mass);
    }
    const auto target = static_cast<uint64_t>(u * static_cast<double>(kept));
    return order.find(&Amount::mass, std::min(target, kept - 1)).token;
}

}  // namespace vocabpipe
