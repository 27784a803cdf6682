// SPDX-License-Identifier: Apache-2.0
// Which rows the members of a team of experts send each other, and what they compute when. A member
// is a home of its own tokens and the owner of E / e consecutive experts.
#pragma once

#include "vocabpipe/tile_map.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// What is known of a team before its tokens have chosen.
struct RoutingShape {
    int members = 1;        ///< e
    int64_t tokens = 0;     ///< n, of each member
    int64_t experts = 0;    ///< E
    int64_t per_token = 0;  ///< k, different experts each
    int64_t budget = 0;     ///< R: rows of a member's experts in one wave
    int pieces = 1;         ///< K, of what one member sends another in a wave

    /// Of a member.
    [[nodiscard]] int64_t own_experts() const { return experts / members; }
    /// Members that a token can go to, and rows that its copy can make on one of them.
    [[nodiscard]] int64_t most_copies() const;
    [[nodiscard]] int64_t most_rows_of_copy() const;
    /// Rows of one member if all tokens choose its experts.
    [[nodiscard]] int64_t most_rows() const;
    /// Rows of an expert if all have equally many; at least 1.
    [[nodiscard]] int64_t mean_rows_of_expert() const;
    /// Copies that a member receives in one wave at most: each makes a row.
    [[nodiscard]] int64_t most_received() const;
};

/// R: `factor` times the mean n k of rows per member, at least a tile, at most the worst case.
[[nodiscard]] int64_t row_budget(const RoutingShape& shape, double factor);

/// What one member sends, receives and computes in one wave. All numbers are those that Operators
/// take as indices. Copies have the order in which they arrive: own ones, then those of rank - 1,
/// rank - 2, ..., of each in the order of its tokens. Rows are sorted by expert, of each expert by
/// copy; a copy has one row for each of its token's choices that is an expert of this member.
struct RoutingWave {
    /// Rows that the products compute at once: when the first `pieces` pieces of `source` are there
    /// and all that arrive before them.
    struct Step {
        int source = 0;
        int pieces = 0;
        std::vector<RowRange> rows;  ///< [own expert]; cut as TileMap cuts
    };

    // As a home.
    std::vector<std::vector<int32_t>> tokens;  ///< [member] own tokens with a copy there, ascending
    std::vector<int32_t> copy_of_token;  ///< (n, e): which of tokens[member] it is; -1: of none

    // As an owner of experts.
    std::vector<RowRange> copies;        ///< [source] where its copies are
    std::vector<int32_t> token_of_copy;  ///< member n + token
    std::vector<RowRange> rows;          ///< [own expert]
    std::vector<int32_t> slot_of_row;    ///< copy k + choice of its token
    std::vector<int32_t> row_of_slot;    ///< (copies, k); -1: another member's expert
    std::vector<Step> steps;             ///< in the order of arrival; some without rows

    [[nodiscard]] int64_t row_count() const { return static_cast<int64_t>(slot_of_row.size()); }
    [[nodiscard]] int64_t copy_count() const { return static_cast<int64_t>(token_of_copy.size()); }
};

/// Pure: a function of all members' choices, from which every member computes what concerns it, so
/// that no index travels and both ends of a message agree. A token goes once to a member, however
/// many of its experts live there. A member whose experts have more than R rows takes them in
/// several waves of whole copies, in the order of arrival; all members have the number of waves of
/// the one that has most.
class RoutingPlan {
public:
    /// choices[member] (n k): experts of its tokens, which must outlive the plan. Throws UsageError
    /// for another number of choices, experts that do not exist, or a budget that a copy exceeds.
    RoutingPlan(const RoutingShape& shape, int rank, std::vector<std::span<const int32_t>> choices);

    /// One at least.
    [[nodiscard]] int waves() const { return waves_; }
    [[nodiscard]] RoutingWave wave(int number) const;

private:
    /// Of a token of a member: how many of its choices are experts of `owner`.
    [[nodiscard]] int64_t rows_of(int source, int64_t token, int owner) const;
    /// In which wave `owner` takes each copy, in the order in which they arrive there; calls
    /// take(source, token, wave).
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
