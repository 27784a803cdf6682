// SPDX-License-Identifier: Apache-2.0
// Which files a tokenizer is read from, and what is refused of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "src/train/tokenizer/open_tokenizer.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::write_file;

std::string file_of(const std::string& form) {
    return testing::read_file(TOKENIZER_CASES "/" + form + "/tokenizer.json");
}

std::string refusal_of(const TempFolder& folder, const std::string& text) {
    write_file(folder / "tokenizer.json", text);
    return testing::message_of<InputFileError>([&] { (void)open_tokenizer(folder / ""); });
}

struct Change {
    const char* form;
    const char* pointer;  ///< of the value in the JSON
    const char* value;
    const char* refusal;
};

class ChangedTokenizer : public ::testing::TestWithParam<Change> {};

TEST_P(ChangedTokenizer, IsRefusedWithThePlaceAndTheReason) {
    const auto& [form, pointer, value, refusal] = GetParam();
    json changed = json::parse(file_of(form));
    changed[json::json_pointer(pointer)] = json::parse(value);
    const TempFolder folder;
    EXPECT_THAT(refusal_of(folder, changed.dump()),
                HasSubstr("tokenizer.json: " + std::string(refusal)));
}

INSTANTIATE_TEST_SUITE_P(
    Table, ChangedTokenizer,
    ::testing::Values(
        Change{"gpt2", "/model/type", R"("Unigram")", R"(model.type: "Unigram" is not supported)"},
        Change{"gpt2", "/model/type", R"("WordPiece")", R"(model.type: "WordPiece")"},
        Change{"gpt2", "/model/dropout", "0.1", "model.dropout: is not supported"},
        Change{"gpt2", "/model/end_of_word_suffix", R"("</w>")",
               "model.end_of_word_suffix: is not supported"},
        Change{"gpt2", "/model/new_key", "1", R"(model: unknown key "new_key")"},
        Change{"gpt2", "/model/unk_token", R"("none")",
               "model.unk_token: is not in the vocabulary"},
        Change{"gpt2", "/model/merges/0", R"("a")", "model.merges[0]: must have two tokens"},
        Change{"gpt2", "/model/merges/0", R"("a b c")", "model.merges[0]: must have two tokens"},
        Change{"gpt2", "/model/merges/1", R"(["a"])", "model.merges[1]: must have two tokens"},
        Change{"gpt2", "/model/merges/2", R"("a nothing")",
               R"(model.merges[2]: "nothing" is not in the vocabulary)"},
        Change{"gpt2", "/model/vocab/a", "0", "model.vocab."},
        Change{"gpt2", "/model/vocab/a", "-1", "model.vocab.a: -1: must be an integer from 0"},
        Change{"gpt2", "/model/vocab/a", "99999999999", "model.vocab.a: 99999999999: must be"},
        Change{"gpt2", "/truncation", R"({"max_length": 3})", "truncation: is not supported"},
        Change{"gpt2", "/padding", R"({})", "padding: is not supported"},
        Change{"gpt2", "/decoder", "null", "decoder: null is not supported"},
        Change{"gpt2", "/decoder/type", R"("WordPiece")", R"(decoder.type: "WordPiece")"},
        Change{"gpt2", "/normalizer", R"({"type": "Lowercase"})",
               R"(normalizer.type: "Lowercase" is not supported)"},
        Change{"gpt2", "/normalizer", R"({"type": "Precompiled"})",
               R"(normalizer.type: "Precompiled" is not supported)"},
        Change{"gpt2", "/pre_tokenizer", R"({"type": "BertPreTokenizer"})",
               R"(pre_tokenizer.type: "BertPreTokenizer" is not supported)"},
        Change{"llama3", "/pre_tokenizer/pretokenizers/2", R"({"type": "Digits"})",
               R"(pre_tokenizer.pretokenizers[2].type: "Digits" follows ByteLevel)"},
        Change{"llama3", "/pre_tokenizer/pretokenizers/0/pattern/Regex", R"("\\h+")",
               R"(pre_tokenizer.pretokenizers[0].pattern.Regex: the pattern's "\h" is not)"},
        Change{"llama3", "/pre_tokenizer/pretokenizers/0/behavior", R"("Sometimes")",
               R"(pre_tokenizer.pretokenizers[0].behavior: "Sometimes" is not known)"},
        Change{"mistral", "/pre_tokenizer/prepend_scheme", R"("last")",
               R"(pre_tokenizer.prepend_scheme: "last" is not known)"},
        Change{"mistral", "/pre_tokenizer/replacement", R"("__")",
               "pre_tokenizer.replacement: must be one character"},
        Change{"llama2", "/decoder/decoders/3/stop", "1", "decoder.decoders[3].stop: 1: must be"},
        Change{"gpt2", "/post_processor", R"({"type": "Other"})",
               R"(post_processor.type: "Other")"},
        Change{"gpt2", "/added_tokens/0/id", "5", "added_tokens[0].id: 5 is not its id"},
        Change{"qwen2", "/added_tokens/1/content", R"("<|endoftext|>")",
               "added_tokens[1].content: appears twice"},
        Change{"qwen2", "/added_tokens/1/content", R"("")", "added_tokens[1].content: is empty"},
        Change{"qwen2", "/added_tokens/1/odd", "1", R"(added_tokens[1]: unknown key "odd")"}));

/// Ids of a text by a changed tokenizer.json.
std::vector<int32_t> ids_by(const json& tokenizer, const std::string& text) {
    const TempFolder folder;
    write_file(folder / "tokenizer.json", tokenizer.dump());
    std::vector<int32_t> ids;
    open_tokenizer(folder / "tokenizer.json")->encode(text, ids);
    return ids;
}

TEST(TokenizerJson, PrependsItsMarkAsTheSchemeSays) {
    json changed = json::parse(file_of("mistral"));
    json& step = changed["pre_tokenizer"];
    const auto with = [&](const char* scheme, const std::string& text) {
        step.erase("add_prefix_space");
        step["prepend_scheme"] = scheme;
        return ids_by(changed, text);
    };
    EXPECT_EQ(with("always", "the"), with("never", " the"));
    EXPECT_EQ(with("first", "the"), with("never", " the"));
    EXPECT_NE(with("never", "the"), with("never", " the"));
    EXPECT_EQ(with("always", " the"), with("never", " the"));
    // Behind a token that was added, only "always" prepends.
    EXPECT_EQ(with("always", "<s>the"), with("never", "<s> the"));
    EXPECT_EQ(with("first", "<s>the"), with("never", "<s>the"));
    step.erase("prepend_scheme");
    EXPECT_EQ(ids_by(changed, "the"), with("always", "the")) << "always without a scheme";
    step["add_prefix_space"] = false;
    step["prepend_scheme"] = "never";
    EXPECT_EQ(ids_by(changed, "the"), with("never", "the"));
    step["add_prefix_space"] = false;
    step["prepend_scheme"] = "first";
    const TempFolder folder;
    EXPECT_THAT(refusal_of(folder, changed.dump()),
                HasSubstr("add_prefix_space: false needs \"prepend_scheme\": \"never\""));
}

TEST(TokenizerJson, TakesAnAddedTokenThatSaysNothingForText) {
    json changed = json::parse(file_of("qwen2"));
    const std::string text = "ab<|im_start|> to<|im_end|>be";
    const auto opened = [&] {
        const TempFolder folder;
        write_file(folder / "tokenizer.json", changed.dump());
        return open_tokenizer(folder / "tokenizer.json");
    };
    std::vector<int32_t> ids;
    opened()->encode(text, ids);
    EXPECT_EQ(opened()->decode(ids), "ab tobe");
    for (json& token : changed["added_tokens"]) {
        for (const char* key : {"single_word", "lstrip", "rstrip", "normalized"}) token.erase(key);
    }
    EXPECT_EQ(ids_by(changed, text), ids);
    EXPECT_EQ(opened()->decode(ids), "ab tobe");
    changed["added_tokens"][1].erase("special");
    EXPECT_EQ(ids_by(changed, text), ids);
    EXPECT_EQ(opened()->decode(ids), "ab<|im_start|> tobe");
}

TEST(TokenizerJson, BeginsDocumentsAsItsPostProcessorSays) {
    json changed = json::parse(file_of("llama3"));
    const int32_t id = changed["model"]["vocab"]["<|begin_of_text|>"];
    const auto begin = [&](const std::string& processor) {
        const TempFolder folder;
        changed["post_processor"] = json::parse(processor);
        write_file(folder / "tokenizer.json", changed.dump());
        return open_tokenizer(folder / "tokenizer.json")->begin_of_document();
    };
    EXPECT_EQ(begin("null"), -1);
    EXPECT_EQ(begin(R"({"type": "ByteLevel"})"), -1);
    EXPECT_EQ(begin(R"({"type": "TemplateProcessing", "single": []})"), -1);
    EXPECT_EQ(begin(R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}]})"),
              -1);
    EXPECT_EQ(begin(R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}},
                        {"SpecialToken": {"id": "<|begin_of_text|>"}}]})"),
              -1);
    EXPECT_EQ(begin(R"({"type": "RobertaProcessing", "cls": ["<|begin_of_text|>", 0]})"), id);
    EXPECT_EQ(begin(R"({"type": "BertProcessing", "cls": ["<|begin_of_text|>", 0]})"), id);
}

TEST(TokenizerJson, NeedsToKnowWhatEndsADocument) {
    json changed = json::parse(file_of("gpt2"));
    changed["added_tokens"] = json::array();
    json vocab = changed["model"]["vocab"];
    vocab.erase("<|endoftext|>");
    vocab["<|mine|>"] = 0;
    changed["model"]["vocab"] = vocab;
    const TempFolder folder;
    EXPECT_THAT(refusal_of(folder, changed.dump()),
                HasSubstr("tokenizer.json: nothing says which token ends a document; name it in "));
    write_file(folder / "tokenizer_config.json", R"({"eos_token": {"content": "<|mine|>"}})");
    EXPECT_EQ(open_tokenizer(folder / "tokenizer.json")->end_of_document(), 0);
    write_file(folder / "tokenizer_config.json", R"({"eos_token": "<|other|>"})");
    EXPECT_THAT(refusal_of(folder, changed.dump()),
                HasSubstr(R"(tokenizer_config.json: eos_token: "<|other|>" is no token)"));
    write_file(folder / "tokenizer_config.json", "{\"eos_token\": null}");
    write_file(folder / "special_tokens_map.json", R"({"eos_token": "<|mine|>"})");
    EXPECT_EQ(open_tokenizer(folder / "tokenizer.json")->end_of_document(), 0);
}

TEST(TokenizerJson, KnowsWhatDocumentsBeginWith) {
    json changed = json::parse(file_of("llama3"));
    const TempFolder folder;
    const auto begin = [&] {
        write_file(folder / "tokenizer.json", changed.dump());
        return open_tokenizer(folder / "tokenizer.json")->begin_of_document();
    };
    const int32_t id = changed["model"]["vocab"]["<|begin_of_text|>"];
    EXPECT_EQ(begin(), -1);
    write_file(folder / "tokenizer_config.json", R"({"bos_token": "<|begin_of_text|>"})");
    EXPECT_EQ(begin(), -1);
    write_file(folder / "tokenizer_config.json",
               R"({"bos_token": "<|begin_of_text|>", "add_bos_token": true})");
    EXPECT_EQ(begin(), id);
    std::filesystem::remove(folder / "tokenizer_config.json");
    changed["post_processor"] = json::parse(
        R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {}}]})");
    EXPECT_EQ(begin(), id);
}

TEST(TokenizerJson, ReadsTheFilesBesideItWithItsPrefix) {
    const TempFolder folder;
    write_file(folder / "set.tokenizer.json", file_of("qwen2"));
    write_file(folder / "set.tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
    const auto tokenizer = open_tokenizer(folder / "set.tokenizer.json");
    std::vector<int32_t> ids;
    tokenizer->encode("<|im_end|>", ids);
    EXPECT_EQ(ids, std::vector<int32_t>{tokenizer->end_of_document()});
}

TEST(OpenTokenizer, NamesWhatAFolderLacks) {
    const TempFolder folder;
    const auto message = [&] {
        return testing::message_of<InputFileError>([&] { (void)open_tokenizer(folder / "."); });
    };
    EXPECT_THAT(message(), HasSubstr("has no tokenizer.json, no tokenizer.model"));
    write_file(folder / "a.tiktoken", "IQ== 0\n");
    EXPECT_THAT(message(), HasSubstr("a.tiktoken: has 1 ranks"));
    write_file(folder / "b.tiktoken", "IQ== 0\n");
    EXPECT_THAT(message(), HasSubstr("has no tokenizer.json, no tokenizer.model"));
    write_file(folder / "tokenizer.model", "no model");
    EXPECT_THAT(message(), HasSubstr("tokenizer.model: is not a SentencePiece model"));
    write_file(folder / "tokenizer.json", "{}");
    EXPECT_THAT(message(), HasSubstr("tokenizer.json: \"model\" is missing"));
}

/// As many ranks as GPT-2 has: bytes, then pairs of them.
std::string ranks_as_gpt2() {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const auto base64 = [&](std::vector<unsigned> bytes) {
        const size_t size = bytes.size();
        bytes.resize(3);
        const unsigned bits = bytes[0] << 16 | bytes[1] << 8 | bytes[2];
        std::string text;
        for (const int shift : {18, 12, 6, 0}) text += kDigits[bits >> shift & 63];
        return text.substr(0, size + 1) + std::string(3 - size, '=');
    };
    std::string file;
    for (unsigned rank = 0; rank < 50256; ++rank) {
        const auto bytes = rank < 256
                               ? std::vector<unsigned>{rank}
                               : std::vector<unsigned>{(rank - 256) & 255, (rank - 256) >> 8};
        file += base64(bytes) + " " + std::to_string(rank) + "\n";
    }
    return file;
}

TEST(TiktokenFile, MergesByRank) {
    const TempFolder folder;
    write_file(folder / "tokenizer.model", ranks_as_gpt2());  // as Llama 3 names its ranks
    const auto tokenizer = open_tokenizer(folder / "tokenizer.model");
    EXPECT_EQ(tokenizer->name(), "tiktoken");
    EXPECT_EQ(tokenizer->vocab_size(), 50257);
    EXPECT_EQ(tokenizer->end_of_document(), 50256);
    std::vector<int32_t> ids;
    const auto pair = [](const char* text) { return 256 + text[0] + 256 * text[1]; };
    tokenizer->encode("abc ba<|endoftext|>", ids);
    // "ab" has a lower rank than "bc", and " b" than "ba".
    EXPECT_EQ(ids, (std::vector<int32_t>{pair("ab"), 'c', ' ', pair("ba"), 50256}));
    EXPECT_EQ(tokenizer->decode(ids), "abc ba");
}

TEST(TiktokenFile, NamesTheDamagedLine) {
    const TempFolder folder;
    const auto refusal = [&](const std::string& text) {
        write_file(folder / "x.tiktoken", text);
        return testing::message_of<InputFileError>(
            [&] { (void)open_tokenizer(folder / "x.tiktoken"); });
    };
    EXPECT_THAT(refusal("IQ== 0\nIg== x\n"), HasSubstr("x.tiktoken: line 2: is not a token"));
    EXPECT_THAT(refusal("IQ== 0\n\nIQ 1\n"), HasSubstr("line 3: is not a token in base64"));
    EXPECT_THAT(refusal("IQ== 0\nIQ== 1\n"),
                HasSubstr("line 2: the token or its rank appears twice"));
    EXPECT_THAT(refusal("IQ== 0\nIg== 0\n"),
                HasSubstr("line 2: the token or its rank appears twice"));
    EXPECT_THAT(refusal("IQ== 0\nIg== 99999999\n"), HasSubstr("rank 99999999: must be below"));
    EXPECT_THAT(refusal("IQ== 0\nIg== 7\n"),
                HasSubstr("has 2 ranks, as no tokenizer that is known"));
}

TEST(TokenizerJson, FillsNoMemoryWithATextThatItBlowsUp) {
    json changed = json::parse(file_of("gpt2"));
    json steps = json::array();
    for (int i = 0; i < 90; ++i) {
        steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaa"}});
    }
    changed["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
    const TempFolder folder;
    EXPECT_THAT(refusal_of(folder, changed.dump()),
                HasSubstr("normalizer.normalizers[3].content: may make a text more than 64 times"));
}

/// Whatever the bytes: a tokenizer that encodes and decodes, or one line that says why not.
TEST(TokenizerJson, LoadsOrRefusesWhateverIsDamaged) {
    std::mt19937 random(5);
    const TempFolder folder;
    const std::string nasty = "a\u0301 the <|im_end|>\n\n \xff\u4E2D 12345 </s>x";
    const std::vector<std::string> pieces{
        "\"",     "{",   "}", "null",     "[]",    "-1",   "1e99", "\\u0000",
        "\xff",   ":",   ",", "true",     "\"a\"", "{}",   "99",   "type",
        "\\\\p{", "(?:", "[", "Sequence", "Split", "\"\"", "*+",   "0"};
    int loaded = 0;
    int refused = 0;
    for (const char* const form : {"qwen2", "llama2", "gemma", "splits", "phi4"}) {
        const std::string whole = file_of(form);
        const size_t model = whole.find("\"model\"");
        for (int round = 0; round < 120; ++round) {
            std::string text = whole;
            // Mostly outside of the vocabulary, of which the file has most.
            const size_t limit = random() % 4 != 0 ? model : text.size();
            for (size_t change = 0; change <= random() % 2; ++change) {
                const size_t at = random() % limit;
                const std::string& piece = pieces[random() % pieces.size()];
                switch (random() % 4) {
                    case 0:
                        text.replace(at, piece.size(), piece);
                        break;
                    case 1:
                        text.insert(at, piece);
                        break;
                    case 2:
                        text.erase(at, 1 + random() % 12);
                        break;
                    default:
                        text[at] = static_cast<char>(random());
                }
            }
            write_file(folder / "tokenizer.json", text);
            try {
                const auto tokenizer = open_tokenizer(folder / "tokenizer.json");
                std::vector<int32_t> ids;
                tokenizer->encode(nasty, ids);
                for (const int32_t id : ids) ASSERT_LT(id, tokenizer->vocab_size());
                (void)tokenizer->decode(ids);
                ++loaded;
            } catch (const InputFileError& error) {
                EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
                ++refused;
            }
        }
    }
    EXPECT_GT(loaded, 20);
    EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace vocabpipe
