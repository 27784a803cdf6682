// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/tiktoken_file.hpp"

#include "src/train/tokenizer/bpe/base64.hpp"
#include "src/train/tokenizer/bpe/known_patterns.hpp"
#include "src/train/tokenizer/bpe/rank_merges.hpp"
#include "vocabpipe/error.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int32_t kMostRanks = 1 << 24;  // a hundred times what published tokenizers have

struct Line {
    std::string token;
    int32_t rank;
};

std::optional<Line> parse_line(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0) return {};
    auto token = bytes_of_base64(line.substr(0, space));
    int32_t rank = -1;
    const char* const end = line.data() + line.size();
    const auto [at, error] = std::from_chars(line.data() + space + 1, end, rank);
    if (!token || token->empty() || error != std::errc() || at != end || rank < 0) return {};
    return Line{std::move(*token), rank};
}

using Specials = std::vector<std::pair<std::string, int32_t>>;

void number(Specials& tokens, const std::string& name, int first, int count, int32_t id) {
    for (int i = 0; i < count; ++i) {
        tokens.emplace_back("<|" + name + "_" + std::to_string(first + i) + "|>", id + i);
    }
}

Specials llama3_specials() {
    Specials tokens{{"<|begin_of_text|>", 128000}, {"<|end_of_text|>", 128001}};
    number(tokens, "reserved_special_token", 0, 2, 128002);
    tokens.emplace_back("<|finetune_right_pad_id|>", 128004);
    number(tokens, "reserved_special_token", 2, 1, 128005);
    tokens.emplace_back("<|start_header_id|>", 128006);
    tokens.emplace_back("<|end_header_id|>", 128007);
    tokens.emplace_back("<|eom_id|>", 128008);
    tokens.emplace_back("<|eot_id|>", 128009);
    tokens.emplace_back("<|python_tag|>", 128010);
    number(tokens, "reserved_special_token", 3, 245, 128011);
    return tokens;
}

Specials qwen_specials() {
    Specials tokens{{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}};
    number(tokens, "extra", 0, 205, 151646);
    return tokens;
}

/// A published tokenizer.
struct Known {
    size_t ranks;
    std::string_view pattern;
    Specials specials;
    int32_t begin, end;  ///< of documents; -1: none
};

const Known& find_known(size_t ranks, const std::string& path) {
    static const std::array<Known, 6> kKnown{{
        {50256, kGpt2Pattern, {{"<|endoftext|>", 50256}}, -1, 50256},  // GPT-2
        {50280, kGpt2Pattern, {{"<|endoftext|>", 50256}}, -1, 50256},  // p50k_base
        {100256,
         kCl100kPattern,
         {{"<|endoftext|>", 100257},
          {"<|fim_prefix|>", 100258},
          {"<|fim_middle|>", 100259},
          {"<|fim_suffix|>", 100260},
          {"<|endofprompt|>", 100276}},
         -1,
         100257},
        {128000, kCl100kPattern, llama3_specials(), 128000, 128001},
        {151643, kQwenPattern, qwen_specials(), -1, 151643},
        {199998,
         kO200kPattern,
         {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}},
         -1,
         199999},
    }};
    for (const Known& known : kKnown) {
        if (known.ranks == ranks) return known;
    }
    throw InputFileError(
        path + ": has " + std::to_string(ranks) +
        " ranks, as no tokenizer that is known, and a file of tiktoken does not say "
        "how words are found; use the model's tokenizer.json");
}

}  // namespace

bool begins_as_tiktoken(std::string_view text) {
    return parse_line(text.substr(0, text.find('\n'))).has_value();
}

BpeDescription read_tiktoken_file(std::string_view text, const std::string& path) {
    BpeDescription tokenizer;
    tokenizer.name = "tiktoken";
    int64_t line_number = 0;
    const auto refuse = [&](const std::string& what) {
        throw InputFileError(path + ": line " + std::to_string(line_number) + ": " + what);
    };
    while (!text.empty()) {
        ++line_number;
        const std::string_view rest = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), rest.size() + 1));
        if (rest.empty()) continue;
        auto line = parse_line(rest);
        if (!line) refuse("is not a token in base64 and its rank; the file is damaged");
        if (line->rank >= kMostRanks) {
            refuse("rank " + std::to_string(line->rank) + ": must be below " +
                   std::to_string(kMostRanks));
        }
        const auto rank = static_cast<size_t>(line->rank);
        if (rank >= tokenizer.texts.size()) tokenizer.texts.resize(rank + 1);
        if (!tokenizer.texts[rank].empty() ||
            !tokenizer.words.tokens.add(line->token, line->rank)) {
            refuse("the token or its rank appears twice; the file is damaged");
        }
        tokenizer.texts[rank] = std::move(line->token);
    }
    const Known& known = find_known(tokenizer.words.tokens.size(), path);
    tokenizer.words.merges = merges_of_ranks(tokenizer.words.tokens);
    tokenizer.words.bytes = true;
    tokenizer.words.whole_words = true;
    tokenizer.pre_tokenizer.emplace_back(Split{.pattern = Pattern::regex(known.pattern)});
    for (const auto& [name, id] : known.specials) {
        const auto i = static_cast<size_t>(id);
        if (i >= tokenizer.texts.size()) tokenizer.texts.resize(i + 1);
        if (!tokenizer.texts[i].empty()) {
            throw InputFileError(path + ": has a token of rank " + std::to_string(id) +
                                 ", which is that of " + name + "; the file is damaged");
        }
        tokenizer.texts[i] = name;
        tokenizer.added.push_back({.content = name, .id = id, .special = true});
    }
    tokenizer.begin_of_document = known.begin;
    tokenizer.end_of_document = known.end;
    return tokenizer;
}

}  // namespace vocabpipe
