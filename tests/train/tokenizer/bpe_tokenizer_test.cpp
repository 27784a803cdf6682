// SPDX-License-Identifier: Apache-2.0
// Ids, places and texts against those of the package tokenizers (make_cases.py), and what that
// package does not say: bytes that are not UTF-8, threads, long runs.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/train/tokenizer/open_tokenizer.hpp"

namespace vocabpipe {
namespace {

using nlohmann::json;

std::unique_ptr<Tokenizer> tokenizer_of(const std::string& form) {
    return open_tokenizer(TOKENIZER_CASES "/" + form);
}

json cases_of(const std::string& form) {
    std::ifstream file(TOKENIZER_CASES "/" + form + "/cases.json");
    return json::parse(file);
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    return ids;
}

class Form : public ::testing::TestWithParam<const char*> {};

TEST_P(Form, GivesTheIdsOfTheOracle) {
    const auto tokenizer = tokenizer_of(GetParam());
    const json cases = cases_of(GetParam());
    ASSERT_GT(cases.size(), 30U);
    for (int round = 0; round < 2; ++round) {  // the second time, words are known
        for (const json& one : cases) {
            EXPECT_EQ(ids_of(*tokenizer, one["text"].get<std::string>()),
                      one["ids"].get<std::vector<int32_t>>())
                << one["text"];
        }
    }
}

TEST_P(Form, SaysWhereEachIdBegins) {
    const auto tokenizer = tokenizer_of(GetParam());
    for (const json& one : cases_of(GetParam())) {
        const auto text = one["text"].get<std::string>();
        std::vector<int32_t> ids;
        std::vector<size_t> begins;
        tokenizer->encode_with_begins(text, ids, begins);
        EXPECT_EQ(ids, one["ids"].get<std::vector<int32_t>>()) << text;
        ASSERT_EQ(begins.size(), ids.size());
        EXPECT_TRUE(std::ranges::is_sorted(begins)) << text;
        if (one["begins"].is_null()) continue;
        // The oracle counts characters, so an id within one begins where the character does.
        for (size_t& begin : begins) {
            while (begin > 0 && begin < text.size() &&
                   (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
                --begin;
            }
        }
        EXPECT_EQ(begins, one["begins"].get<std::vector<size_t>>()) << text;
    }
}

TEST_P(Form, DecodesAsTheOracle) {
    const auto tokenizer = tokenizer_of(GetParam());
    for (const json& one : cases_of(GetParam())) {
        const auto decoded = one["decoded"].get<std::string>();
        if (decoded.find("\uFFFD") != std::string::npos) continue;  // bytes are kept here
        EXPECT_EQ(tokenizer->decode(one["ids"].get<std::vector<int32_t>>()), decoded);
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, Form,
                         ::testing::Values("deepseek_v3", "gemma", "gpt2", "gpt_neox", "llama2",
                                           "llama3", "metaspace", "mistral", "nfkc", "phi3", "phi4",
                                           "prefix_space", "qwen2", "smollm", "splits", "tekken"),
                         [](const auto& info) { return std::string(info.param); });

TEST(BpeTokenizer, TakesEveryByteThatIsNotUtf8ForAReplacementCharacter) {
    const std::vector<std::pair<std::string, std::string>> texts{
        {"a\xff z", "a\uFFFD z"},
        {"\xc0\xaf", "\uFFFD\uFFFD"},
        {"\xe2\x82", "\uFFFD\uFFFD"},
        {"\xed\xa0\x80!", "\uFFFD\uFFFD\uFFFD!"},
        {"\xf4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
        {"\xf0\x9f\x98\x80 is whole", "\U0001F600 is whole"}};
    for (const char* const form : {"gpt2", "llama2", "qwen2"}) {
        const auto tokenizer = tokenizer_of(form);
        for (const auto& [bytes, text] : texts) {
            EXPECT_EQ(ids_of(*tokenizer, bytes), ids_of(*tokenizer, text)) << form << bytes;
        }
        std::vector<int32_t> ids;
        std::vector<size_t> begins;
        tokenizer->encode_with_begins("a\xff\xff z", ids, begins);
        EXPECT_LE(begins.back(), 4U);
    }
}

TEST(BpeTokenizer, GivesEveryThreadTheSameIds) {
    const auto tokenizer = tokenizer_of("qwen2");
    const json cases = cases_of("qwen2");
    std::vector<std::vector<int32_t>> results(4);
    std::vector<std::thread> threads;
    for (std::vector<int32_t>& result : results) {
        threads.emplace_back([&] {
            for (const json& one : cases) {
                tokenizer->encode(one["text"].get<std::string>(), result);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::vector<int32_t>& result : results) EXPECT_EQ(result, results[0]);
    EXPECT_GT(results[0].size(), cases.size());
}

/// Runs of one letter, of white space, of marks that a normal form must sort: quadratic time would
/// take an hour.
TEST(BpeTokenizer, TakesLongRunsInItsStride) {
    constexpr size_t kBytes = size_t{1} << 18;
    for (const char* const form :
         {"gpt2", "llama2", "gemma", "qwen2", "deepseek_v3", "tekken", "mistral", "nfkc"}) {
        const auto tokenizer = tokenizer_of(form);
        for (const std::string_view part :
             {"a", " ", "\n", "\u0301\u0316", "\u0F73", "<", "A", "\u4E2D", "\xff"}) {
            std::string text;
            while (text.size() < kBytes) text += part;
            EXPECT_GT(ids_of(*tokenizer, text).size(), 1000U) << form << part;
        }
    }
}

TEST(BpeTokenizer, GivesNoTextForSpecialTokensAndUnknownIds) {
    const auto tokenizer = tokenizer_of("qwen2");
    std::vector<int32_t> ids = ids_of(*tokenizer, "<|im_start|>to be<|im_end|><|endoftext|>");
    ids.push_back(-1);
    ids.push_back(1 << 30);
    EXPECT_EQ(tokenizer->decode(ids), "to be");
}

}  // namespace
}  // namespace vocabpipe
