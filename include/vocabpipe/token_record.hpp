// SPDX-License-Identifier: Apache-2.0
// Records: numbers that the output layer makes for every token from statistics of all shards of the
// vocabulary, while no rank ever holds the logits of another.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// One fp32 number per token, or a list of them, made from its logits z, already divided by the
/// temperature; 0 where the label is ignored. p is their softmax, and Z its denominator.
enum class TokenRecord : uint8_t {
    loss,       ///< what training adds up: -log p of the label, with label smoothing and z-loss
    logprob,    ///< log p of the label, at most 0
    entropy,    ///< -sum p log p, in nats
    logsumexp,  ///< log Z
    margin,     ///< P1 - P2, the probabilities of the two likeliest tokens
    /// The k likeliest tokens, of equal ones that with the lower id first: their k log p, then
    /// their k ids. Where fewer are allowed, -infinity and id -1. See TokenRecords::best().
    top_logprobs,
    /// The label's place among the allowed tokens, 1 for the likeliest; of equal ones that with the
    /// lower id comes first. One more than their number where the label is not allowed. No loss can
    /// read it: it is added up over the shards after the step.
    label_rank,
};

/// All of them, in the order in which they are stored.
inline constexpr std::initializer_list<TokenRecord> kEveryTokenRecord{
    TokenRecord::loss,   TokenRecord::logprob,      TokenRecord::entropy,   TokenRecord::logsumexp,
    TokenRecord::margin, TokenRecord::top_logprobs, TokenRecord::label_rank};

/// "loss" and so on.
[[nodiscard]] std::string_view to_string(TokenRecord record);
/// UsageError for another name, with those that there are.
[[nodiscard]] TokenRecord token_record_from(std::string_view name);

/// A set of records. They are stored in the order of the enumeration.
class TokenRecords {
public:
    /// Largest k of best(), so that the statistics of a shard stay below 1 KiB per token.
    static constexpr int64_t kMostBest = 64;
    /// Only the list of the `count` likeliest tokens, 1 to kMostBest.
    [[nodiscard]] static constexpr TokenRecords best(int64_t count) {
        TokenRecords list{TokenRecord::top_logprobs};
        list.best_ = static_cast<int32_t>(count);
        return list;
    }
    /// None.
    constexpr TokenRecords() = default;
    /// These, in any order; a list comes from best().
    constexpr TokenRecords(std::initializer_list<TokenRecord> records) {
        for (const TokenRecord record : records) bits_ |= bit(record);
    }
    /// Whether a record is one of them.
    [[nodiscard]] constexpr bool has(TokenRecord record) const {
        return (bits_ & bit(record)) != 0;
    }
    /// Whether there are none.
    [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
    /// k of the list of the likeliest tokens; 0: it is not among them.
    [[nodiscard]] constexpr int64_t best_count() const { return best_; }
    /// Numbers per token of a record of the set: 1, or 2 k.
    [[nodiscard]] constexpr int64_t numbers_of(TokenRecord record) const {
        return record == TokenRecord::top_logprobs ? 2 * best_count() : 1;
    }
    /// Numbers per token of all of them.
    [[nodiscard]] constexpr int64_t size() const { return numbers(bits_); }
    /// The place of a record's first number among those of the set, from 0.
    [[nodiscard]] constexpr int64_t index_of(TokenRecord record) const {
        return numbers(bits_ & (bit(record) - 1));
    }
    /// Those of both; of two lists the longer one.
    [[nodiscard]] constexpr TokenRecords operator|(TokenRecords other) const {
        other.bits_ |= bits_;
        other.best_ = best_ > other.best_ ? best_ : other.best_;
        return other;
    }
    /// In the order in which they are stored.
    [[nodiscard]] std::vector<TokenRecord> list() const;
    /// Whether both have the same records.
    constexpr bool operator==(const TokenRecords&) const = default;

private:
    static constexpr uint32_t bit(TokenRecord record) {
        return 1U << static_cast<uint32_t>(record);
    }
    /// Numbers per token of the records with these bits.
    [[nodiscard]] constexpr int64_t numbers(uint32_t bits) const {
        int64_t count = 0;
        for (const TokenRecord record : kEveryTokenRecord) {
            if ((bits & bit(record)) != 0) count += numbers_of(record);
        }
        return count;
    }
    uint32_t bits_ = 0;
    int32_t best_ = 0;
};

/// What the output layer makes for the caller in every step.
struct TokenRecordOptions {
    /// Records to be stored. Default none: training needs the loss only, for a moment.
    TokenRecords columns = {};
    /// Logits are divided by it before the softmax, in values and gradients; above 0. 1: as the
    /// model is.
    float temperature = 1;
    /// [row of the vocabulary] Whether the token may occur; the logits of the others become
    /// -infinity. Empty: all may. The log-probability of a label that may not is -infinity.
    std::vector<bool> allowed_tokens = {};

    /// Throws UsageError for a temperature that is not above 0, another number of allowed tokens
    /// than `vocab_size`, or none that is allowed; and for a list of fewer than 1 or more than
    /// TokenRecords::kMostBest tokens, or than there are.
    void check(int64_t vocab_size) const;
    /// Member by member.
    bool operator==(const TokenRecordOptions&) const = default;
};

}  // namespace vocabpipe
