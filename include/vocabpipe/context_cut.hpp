// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/tile_map.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace vocabpipe {

/// Which tokens of every sequence a context rank has. C ranks cut a sequence of s tokens into 2 C
/// segments of equal size, and rank c has segments c and 2 C - 1 - c, in this order (zigzag; chunks
/// in Megatron-LM's context parallelism): a late token attends to more keys than an early one, and
/// the two segments together to equally many on every rank. One rank has one segment, the whole
/// sequence.
class ContextCut {
public:
    /// The whole of every sequence.
    explicit ContextCut(int64_t seq_length) : ContextCut(seq_length, 0, 1) {}
    /// Throws UsageError as check().
    ContextCut(int64_t seq_length, int rank, int ranks);
    /// Throws UsageError, naming --context-parallel-size, unless 2 `ranks` divides the sequence.
    static void check(int64_t seq_length, int ranks);

    [[nodiscard]] int rank() const { return rank_; }    ///< c
    [[nodiscard]] int ranks() const { return ranks_; }  ///< C
    /// s, tokens of a whole sequence.
    [[nodiscard]] int64_t seq_length() const { return seq_length_; }
    /// Tokens of a sequence that a rank has, s / C.
    [[nodiscard]] int64_t own_length() const { return seq_length_ / ranks_; }
    /// Segments that a rank has of a sequence: 2, or 1 where it is not cut.
    [[nodiscard]] int segments() const { return ranks_ == 1 ? 1 : 2; }
    /// Tokens of a segment.
    [[nodiscard]] int64_t segment_length() const { return own_length() / segments(); }
    /// The tokens of the sequence in the n-th segment of a rank, ascending with n.
    [[nodiscard]] RowRange segment(int rank, int n) const {
        const int64_t number = n == 0 ? rank : 2 * ranks_ - 1 - rank;
        return {number * segment_length(), (number + 1) * segment_length()};
    }
    /// The same for this rank.
    [[nodiscard]] RowRange segment(int n) const { return segment(rank_, n); }
    /// Where the n-th segment of a sequence is among the own tokens of several sequences.
    [[nodiscard]] RowRange own_rows(int64_t sequence, int n) const {
        const int64_t first = sequence * own_length() + n * segment_length();
        return {first, first + segment_length()};
    }
    /// Whether causal attention of any token of `rank` sees the n-th segment of `owner`.
    [[nodiscard]] bool sees(int rank, int owner, int n) const {
        return segment(owner, n).first < segment(rank, segments() - 1).end;
    }
    /// Where this rank's token `index`, from 0 to own_length() - 1, is in the sequence.
    [[nodiscard]] int64_t position(int64_t index) const {
        return segment(static_cast<int>(index / segment_length())).first + index % segment_length();
    }
    /// Copies this rank's tokens of a sequence, in its order: own_length() of seq_length() values.
    template <typename T>
    void take(std::span<const T> whole, std::span<T> own) const {
        for (int n = 0; n < segments(); ++n) {
            std::copy_n(whole.begin() + segment(n).first, segment_length(),
                        own.begin() + n * segment_length());
        }
    }

private:
    int64_t seq_length_;
    int rank_;
    int ranks_;
};

}  // namespace vocabpipe
