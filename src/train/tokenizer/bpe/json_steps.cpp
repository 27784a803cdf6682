// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/json_steps.hpp"

#include "src/train/tokenizer/bpe/known_patterns.hpp"
#include "src/train/tokenizer/bpe/utf8.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace vocabpipe {

namespace {

constexpr size_t kMostSteps = 100;  // of one kind
constexpr size_t kMostGrowth = 64;  // of a text by all replacements; keeps it from filling memory

/// The parts of a Sequence, else the value itself; none for null.
std::vector<StrictJson> parts_of(const StrictJson& json, const char* list) {
    if (json.is_null()) return {};
    if (json.at("type").text() != "Sequence") return {json};
    json.only({"type", list});
    std::vector<StrictJson> parts;
    for (const StrictJson& part : json.at(list).items(kMostSteps)) {
        for (StrictJson& inner : parts_of(part, list)) parts.push_back(std::move(inner));
    }
    return parts;
}

[[noreturn]] void refuse_type(const StrictJson& json, std::string_view supported) {
    json.at("type").fail("\"" + json.at("type").text() + "\" is not supported; " +
                         std::string(supported) + " are");
}

/// {"String": text} or {"Regex": pattern}.
Pattern read_pattern(const StrictJson& json) {
    json.only({"String", "Regex"});
    if (json.has("String")) return Pattern::literal(json.at("String").text());
    try {
        return Pattern::regex(json.at("Regex").text());
    } catch (const UsageError& error) {
        json.at("Regex").fail(std::string(error.what()) + "; the file cannot be used");
    }
}

SplitBehavior read_behavior(const StrictJson& json) {
    constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames{
        {{"Removed", SplitBehavior::removed},
         {"Isolated", SplitBehavior::isolated},
         {"Contiguous", SplitBehavior::contiguous},
         {"MergedWithPrevious", SplitBehavior::merged_with_previous},
         {"MergedWithNext", SplitBehavior::merged_with_next}}};
    const std::string name = json.text();
    for (const auto& [known, behavior] : kNames) {
        if (name == known) return behavior;
    }
    json.fail("\"" + name + "\" is not known");
}

void read_metaspace(const StrictJson& json, std::vector<TextStep>& steps) {
    json.only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    const std::string mark = json.at("replacement").text();
    if (mark.empty() || valid_character_bytes(mark[0]) != mark.size()) {
        json.at("replacement").fail("must be one character");
    }
    const std::string scheme =
        json.has("prepend_scheme") ? json.at("prepend_scheme").text() : "always";
    if (scheme != "always" && scheme != "first" && scheme != "never") {
        json.at("prepend_scheme").fail("\"" + scheme + "\" is not known");
    }
    if (!flag_or(json, "add_prefix_space", true) && scheme != "never") {
        json.at("add_prefix_space").fail("false needs \"prepend_scheme\": \"never\"");
    }
    steps.emplace_back(ReplaceMatches{.pattern = Pattern::literal(" "), .text = mark});
    if (scheme != "never") {
        steps.emplace_back(
            Prefix{.text = mark, .unless_there = true, .at_beginning_only = scheme == "first"});
    }
    if (flag_or(json, "split", true)) {
        steps.emplace_back(
            Split{.pattern = Pattern::literal(mark), .behavior = SplitBehavior::merged_with_next});
    }
}

/// ByteLevel, but for the bytes: the words of this library are bytes already.
void read_byte_level(const StrictJson& json, std::vector<TextStep>& steps) {
    json.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (flag_or(json, "add_prefix_space", true)) {
        steps.emplace_back(Prefix{.text = " ", .unless_there = true});
    }
    if (flag_or(json, "use_regex", true)) {
        steps.emplace_back(Split{.pattern = Pattern::regex(kGpt2Pattern)});
    }
}

}  // namespace

bool flag_or(const StrictJson& json, const char* key, bool absent) {
    return json.has(key) ? json.at(key).boolean() : absent;
}

void read_normalizer(const StrictJson& json, std::vector<TextStep>& steps) {
    constexpr std::array<std::pair<std::string_view, UnicodeForm>, 4> kForms{
        {{"NFC", UnicodeForm::nfc},
         {"NFD", UnicodeForm::nfd},
         {"NFKC", UnicodeForm::nfkc},
         {"NFKD", UnicodeForm::nfkd}}};
    size_t growth = 1;
    for (const StrictJson& part : parts_of(json, "normalizers")) {
        const std::string type = part.at("type").text();
        const size_t before = steps.size();
        for (const auto& [name, form] : kForms) {
            if (type == name) steps.emplace_back(form);
        }
        if (type == "Prepend") {
            part.only({"type", "prepend"});
            steps.emplace_back(Prefix{.text = part.at("prepend").text()});
        } else if (type == "Replace") {
            part.only({"type", "pattern", "content"});
            const std::string content = part.at("content").text();
            growth *= std::max(content.size(), size_t{1});
            if (growth > kMostGrowth) {
                part.at("content").fail("may make a text more than " + std::to_string(kMostGrowth) +
                                        " times as long, with those before it");
            }
            steps.emplace_back(
                ReplaceMatches{.pattern = read_pattern(part.at("pattern")), .text = content});
        }
        if (steps.size() == before) {
            refuse_type(part, "NFC, NFD, NFKC, NFKD, Prepend, Replace and Sequence");
        }
    }
}

bool read_pre_tokenizer(const StrictJson& json, std::vector<TextStep>& steps) {
    bool bytes = false;
    for (const StrictJson& part : parts_of(json, "pretokenizers")) {
        const std::string type = part.at("type").text();
        if (bytes)
            part.at("type").fail("\"" + type + "\" follows ByteLevel, which must be the last");
        if (type == "ByteLevel") {
            read_byte_level(part, steps);
            bytes = true;
        } else if (type == "Metaspace") {
            read_metaspace(part, steps);
        } else if (type == "Split") {
            part.only({"type", "pattern", "behavior", "invert"});
            steps.emplace_back(Split{.pattern = read_pattern(part.at("pattern")),
                                     .behavior = read_behavior(part.at("behavior")),
                                     .invert = flag_or(part, "invert", false)});
        } else if (type == "Digits") {
            part.only({"type", "individual_digits"});
            steps.emplace_back(Split{.pattern = Pattern::regex("\\p{N}"),
                                     .behavior = flag_or(part, "individual_digits", false)
                                                     ? SplitBehavior::isolated
                                                     : SplitBehavior::contiguous});
        } else if (type == "Punctuation") {
            part.only({"type", "behavior"});
            steps.emplace_back(Split{.pattern = Pattern::regex("[!-/:-@\\[-`{-~\\p{P}]"),
                                     .behavior = part.has("behavior")
                                                     ? read_behavior(part.at("behavior"))
                                                     : SplitBehavior::isolated});
        } else {
            refuse_type(part, "ByteLevel, Digits, Metaspace, Punctuation, Sequence and Split");
        }
    }
    return bytes;
}

TokenText read_decoder(const StrictJson& json) {
    TokenText result;
    if (json.is_null()) json.fail("null is not supported; name how tokens become text");
    const auto parts = parts_of(json, "decoders");
    bool fused = false;
    for (const StrictJson& part : parts) {
        const std::string type = part.at("type").text();
        if (type == "ByteLevel" && parts.size() == 1) {
            result.alphabet = true;
        } else if (type == "Metaspace" && parts.size() == 1) {
            const std::string mark = part.at("replacement").text();
            if (mark.empty()) part.at("replacement").fail("is empty");
            const bool never =
                part.has("prepend_scheme") && part.at("prepend_scheme").text() == "never";
            if (!never && flag_or(part, "add_prefix_space", true)) result.left_out_of_first = mark;
            result.replacements.emplace_back(mark, " ");
        } else if (type == "Replace" && !fused && !result.byte_fallback) {
            part.only({"type", "pattern", "content"});
            part.at("pattern").only({"String"});
            const StrictJson from = part.at("pattern").at("String");
            if (from.text().empty()) from.fail("is empty");
            result.replacements.emplace_back(from.text(), part.at("content").text());
        } else if (type == "ByteFallback" && !fused) {
            result.byte_fallback = true;
        } else if (type == "Fuse") {
            fused = true;
        } else if (type == "Strip" && fused && result.strip_text.empty()) {
            part.only({"type", "content", "start", "stop"});
            (void)part.at("stop").integer(0, 0);
            result.strip_text = part.at("content").text();
            if (result.strip_text.empty()) part.at("content").fail("is empty");
            result.strip_count = static_cast<size_t>(part.at("start").integer(0, INT32_MAX));
        } else {
            part.at("type").fail("\"" + type +
                                 "\" is not supported here; ByteLevel, Metaspace, or Replace, "
                                 "ByteFallback, Fuse and Strip in this order are");
        }
    }
    return result;
}

std::optional<std::string> read_begin(const StrictJson& json) {
    for (const StrictJson& part : parts_of(json, "processors")) {
        const std::string type = part.at("type").text();
        if (type == "ByteLevel") continue;  // says how offsets are trimmed
        if (type == "RobertaProcessing" || type == "BertProcessing") {
            const auto token = part.at("cls").items(2);
            if (token.empty()) part.at("cls").fail("must be a token and its id");
            return token[0].text();
        }
        if (type != "TemplateProcessing") {
            refuse_type(part,
                        "BertProcessing, ByteLevel, RobertaProcessing, Sequence and "
                        "TemplateProcessing");
        }
        const auto single = part.at("single").items(kMostSteps);
        if (!single.empty() && single[0].has("SpecialToken")) {
            return single[0].at("SpecialToken").at("id").text();
        }
    }
    return {};
}

}  // namespace vocabpipe
