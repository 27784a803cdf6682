// SPDX-License-Identifier: Apache-2.0
// How tokens may fall to experts: what the tests of every device run through.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/matrix.hpp"
#include "vocabpipe/tile_map.hpp"

namespace vocabpipe::kernels::test {

/// row_begin (E + 1) as the rows of each expert.
inline std::vector<RowRange> ranges_of(const std::vector<int32_t>& row_begin) {
    std::vector<RowRange> rows;
    for (size_t e = 0; e + 1 < row_begin.size(); ++e) {
        rows.push_back({row_begin[e], row_begin[e + 1]});
    }
    return rows;
}

struct ExpertRows {
    std::string name;
    std::vector<int32_t> row_begin;
    std::vector<RowRange> rows() const { return ranges_of(row_begin); }
};

inline std::vector<int32_t> running_sums(const std::vector<int32_t>& counts) {
    std::vector<int32_t> sums{0};
    for (const int32_t count : counts) sums.push_back(sums.back() + count);
    return sums;
}

inline std::vector<ExpertRows> expert_rows() {
    std::vector<ExpertRows> cases{
        {"one expert", running_sums({70})},
        {"no rows", running_sums({0, 0, 0})},
        {"all rows to one expert", running_sums({0, 0, 150, 0})},
        {"single rows", running_sums({1, 0, 1, 1, 0, 1})},
        {"few rows", running_sums({2, 31, 0, 33, 5, 1, 64})},
    };
    std::mt19937 engine(3);
    std::uniform_int_distribution<int32_t> rows(0, 40);
    std::vector<int32_t> counts(12);
    for (auto& count : counts) count = rows(engine);
    cases.push_back({"random", running_sums(counts)});
    return cases;
}

struct ChoiceCase {
    std::string name;
    int32_t experts;
    int64_t top_k;
    std::vector<int32_t> choice;
};

/// `tokens` tokens that each choose k different ones of `experts`.
inline std::vector<int32_t> random_choice(int64_t tokens, int32_t experts, int64_t k,
                                          unsigned seed) {
    std::mt19937 engine(seed);
    std::vector<int32_t> all(static_cast<size_t>(experts)), choice;
    std::iota(all.begin(), all.end(), 0);
    for (int64_t n = 0; n < tokens; ++n) {
        std::shuffle(all.begin(), all.end(), engine);
        choice.insert(choice.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(k));
    }
    return choice;
}

inline std::vector<ChoiceCase> choice_cases() {
    std::vector<ChoiceCase> cases{
        {"no tokens", 3, 2, {}},
        {"one token", 5, 3, {4, 0, 2}},
        {"all to one expert", 4, 1, std::vector<int32_t>(70, 2)},
        {"to the first and last", 6, 2, {0, 5, 5, 0, 0, 5}},
    };
    for (const auto& [tokens, experts, k] :
         {std::tuple{40, 8, 2}, {33, 64, 8}, {300, 128, 4}, {17, 3, 3}, {700, 5, 1}}) {
        cases.push_back({"random of " + std::to_string(experts), experts, k,
                         random_choice(tokens, experts, k, static_cast<unsigned>(experts))});
    }
    return cases;
}

/// What one product and rounding to the type may change.
inline std::function<double(int64_t, int64_t)> rounded_once(const Matrix& exact, DType type) {
    return [&exact, type](int64_t row, int64_t col) {
        return (kEps32 + unit_roundoff(type)) * 1.01 * std::abs(exact.get(row, col));
    };
}

/// The same of a residual and k slots, all of them below 1.
inline std::function<double(int64_t, int64_t)> sum_of_slots(const Matrix& exact, int64_t k,
                                                            DType type) {
    return [&exact, k, type](int64_t row, int64_t col) {
        return static_cast<double>((k + 2) * (k + 1)) * kEps32 +
               unit_roundoff(type) * 1.01 * std::abs(exact.get(row, col));
    };
}

}  // namespace vocabpipe::kernels::test
