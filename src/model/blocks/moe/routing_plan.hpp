// SPDX-License-Identifier: Apache-2.0
// Plans which rows the members of a team of experts send each other, and the order in which they
// compute. A member is the home of its own tokens and the owner of consecutive experts, or, as one
// of x neighbors, of a part of each of them.
#pragma once

#include "vocabpipe/tile_map.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// Sizes of a team that are known before tokens choose experts.
struct RoutingShape {
    int members = 1;        ///< e
    int64_t tokens = 0;     ///< n, of each member
    int64_t experts = 0;    ///< E
    int64_t per_token = 0;  ///< k, distinct experts of a token
    int expert_tensor = 1;  ///< x, neighboring members that share each expert
    int64_t budget = 0;     ///< R: rows of a member's experts in one wave
    int pieces = 1;         ///< K, pieces per wave, sender and receiver

    /// Experts of one member, and the first of them.
    [[nodiscard]] int64_t own_experts() const { return experts * expert_tensor / members; }
    [[nodiscard]] int64_t first_expert(int member) const {
        return member / expert_tensor * own_experts();
    }
    /// The most members that a token can go to, and the most rows of its copy on one of them.
    [[nodiscard]] int64_t most_copies() const;
    [[nodiscard]] int64_t most_rows_of_copy() const;
    /// The most rows of a member: all tokens choose its experts.
    [[nodiscard]] int64_t most_rows() const;
    /// Rows of an expert if all experts have the same number; at least 1.
    [[nodiscard]] int64_t mean_rows_of_expert() const;
    /// The most copies that a member receives in one wave: each has at least one row.
    [[nodiscard]] int64_t most_received() const;
};

/// R: `factor` times n k x, the mean number of rows per member; at least 128 and the most rows of a
/// copy, at most most_rows().
[[nodiscard]] int64_t row_budget(const RoutingShape& shape, double factor);

/// What one member sends, receives and computes in one wave. All numbers are indices for Operators.
/// Copies are in order of arrival: own ones, then those of rank - 1, rank - 2, ..., each member's
/// in the order of its tokens. Rows are sorted by expert, then by copy; a copy has one row for each
/// of its token's choices that is an expert of this member.
struct RoutingWave {
    /// Rows that the products compute at once: when the first `pieces` pieces of `source`, and all
    /// pieces that come before them, have arrived.
    struct Step {
        int source = 0;
        int pieces = 0;
        std::vector<RowRange> rows;  ///< [own expert]; cut as TileMap cuts
    };

    // The member as a home.
    std::vector<std::vector<int32_t>> tokens;  ///< [member] own tokens with a copy there, ascending
    std::vector<int32_t> copy_of_token;        ///< (n, e): index into tokens[member], or -1

    // The member as an owner of experts.
    std::vector<RowRange> copies;        ///< [source] range of its copies
    std::vector<int32_t> token_of_copy;  ///< member n + token
    std::vector<RowRange> rows;          ///< [own expert]
    std::vector<int32_t> slot_of_row;    ///< copy k + choice of its token
    std::vector<int32_t> row_of_slot;    ///< (copies, k); -1: no expert of this member
    std::vector<Step> steps;             ///< in the order of arrival; some without rows

    [[nodiscard]] int64_t row_count() const { return static_cast<int64_t>(slot_of_row.size()); }
    [[nodiscard]] int64_t copy_count() const { return static_cast<int64_t>(token_of_copy.size()); }
};

/// A pure function of all members' choices. Every member computes its own part of it, so that no
/// index travels and both ends of a message agree. A token goes to a member once, however many of
/// its experts live there. A member whose experts have more than R rows takes them in several waves
/// of whole copies, in order of arrival; all members run as many waves as the member that needs
/// most.
class RoutingPlan {
public:
    /// choices[member] (n k): experts of its tokens; the memory must outlive the plan. Throws
    /// UsageError for another number of choices, experts that do not exist or cannot be shared so,
    /// or a budget that a copy exceeds.
    RoutingPlan(const RoutingShape& shape, int rank, std::vector<std::span<const int32_t>> choices);

    /// At least one.
    [[nodiscard]] int waves() const { return waves_; }
    [[nodiscard]] RoutingWave wave(int number) const;

private:
    /// How many choices of a token of `source` are experts of `owner`.
    [[nodiscard]] int64_t rows_of(int source, int64_t token, int owner) const;
    /// Calls take(source, token, wave) for each copy in the order in which it arrives at `owner`,
    /// with the wave in which `owner` takes it.
    template <typename Take>
    void for_copies(int owner, const Take& take) const;
    void send_from_home(RoutingWave& wave, int number) const;
    void receive_copies(RoutingWave& wave, int number) const;
    void sort_rows(RoutingWave& wave) const;
    void order_steps(RoutingWave& wave) const;

    RoutingShape shape_;
    int rank_;
    std::vector<std::span<const int32_t>> choices_;
    std::vector<bool> exceeds_;  ///< [member] its rows exceed the budget
    int waves_ = 1;
};

/// The pieces of `copies` copies that one member sends another.
[[nodiscard]] inline TileMap pieces_of_copies(int64_t copies, int pieces) {
    return TileMap::even(copies, 1, pieces);
}

}  // namespace vocabpipe
