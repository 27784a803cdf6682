// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <vector>

#include "src/train/data/megatron_writer.hpp"
#include "src/train/tokenizer/open_tokenizer.hpp"
#include "tests/tool/run_program.hpp"
#include "tests/train/data/read_all.hpp"
#include "vocabpipe/open_tokens.hpp"

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::Outcome;
using ::testing::StartsWith;
using testing::TempFolder;
using Names = std::set<std::string>;

/// Runs the program in the folder `in`.
Outcome vocabpipe_in(const TempFolder& in, const std::string& arguments) {
    return testing::run_in(in, "'" VOCABPIPE_PROGRAM "' " + arguments);
}

std::vector<int32_t> tokens_of(const std::string& path) {
    return testing::read_all(*open_tokens(path));
}

std::string prose() {
    std::string text;
    for (int i = 0; i < 300; ++i) {
        text += "The pipeline of rank " + std::to_string(i % 17) + " waits for the vocabulary.\n";
        text += i % 10 == 9 ? "\n" : "";
    }
    return text;
}

TEST(DataPrepare, TakesLineEndsOfWindowsForLineEnds) {
    const TempFolder folder;
    testing::write_file(folder / "c.txt", "a\r\nA\r\n\r\nb\r\n");
    ASSERT_EQ(vocabpipe_in(folder,
                           "data prepare --input c.txt --output blank "
                           "--document-separator blank-lines")
                  .exit_code,
              0);
    EXPECT_EQ(tokens_of(folder / "blank"), (std::vector<int32_t>{'a', '\n', 'A', 256, 'b', 256}));
    ASSERT_EQ(vocabpipe_in(folder,
                           "data prepare --input c.txt --output line "
                           "--document-separator line")
                  .exit_code,
              0);
    EXPECT_EQ(tokens_of(folder / "line"), (std::vector<int32_t>{'a', 256, 'A', 256, 'b', 256}));
    ASSERT_EQ(vocabpipe_in(folder, "data prepare --input c.txt --output file").exit_code, 0);
    EXPECT_EQ(tokens_of(folder / "file").size(), 12U) << "verbatim";
}

TEST(DataInspect, ShowsLossWeightsAndHowDocumentsPack) {
    const TempFolder folder;
    MegatronWriter writer(folder / "set", 257, LossWeightType::u8);
    for (const int length : {4, 7, 3, 20}) {
        const std::vector<int32_t> document(static_cast<size_t>(length), length);
        std::vector<float> weights(document.size(), 2);
        weights.front() = 0;
        writer.append(document, weights);
        writer.end_document();
    }
    writer.finish();
    const Outcome seen =
        vocabpipe_in(folder, "data inspect set --packing-strategy bfd --seq-length 8");
    ASSERT_EQ(seen.exit_code, 0) << seen.error;
    EXPECT_THAT(
        seen.output,
        AllOf(HasSubstr("loss weights   u8, sum 60, above 0 for 88.24 % of the tokens\n"),
              HasSubstr("4 documents in 4 sequences of 8 tokens, 6.25 % padding; 1 longer\n"),
              HasSubstr("--packing-strategy bfd --seq-length 8\n")));
    EXPECT_THAT(vocabpipe_in(folder, "data inspect set --packing-strategy bfd").error,
                HasSubstr("set --seq-length"));
    testing::write_file(folder / "raw", std::string("\1\0\2\0", 4));
    const std::string raw =
        "data inspect raw --data-format raw-u16 --packing-strategy bfd --seq-length 8";
    EXPECT_THAT(vocabpipe_in(folder, raw).error, HasSubstr("set --eod-token-id"));
    EXPECT_THAT(vocabpipe_in(folder, raw + " --eod-token-id 2").output,
                HasSubstr("1 document in 1 sequence of 8 tokens, 87.50 % padding"));
}

TEST(DataInspect, ShowsSequencesOfSeveralLengthsAndWritesThoseOfDocuments) {
    const TempFolder folder;
    MegatronWriter writer(folder / "set", 257);
    for (const int length : {4, 7, 3, 20}) {
        writer.append(std::vector<int32_t>(static_cast<size_t>(length), length));
        writer.end_document();
    }
    writer.finish();
    const std::string inspect = "data inspect set --seq-length 8 --packing-strategy ";
    // Documents of 3, 6, 2 and 19 rows; 2 goes beside 6, and 19 is cut into 8, 8 and 3.
    EXPECT_THAT(
        testing::unwrapped(vocabpipe_in(folder, inspect + "bfd --length-buckets 8,4").output),
        AllOf(HasSubstr("in 3 sequences of 8 tokens and 2 of 4, 6.25 % padding"),
              HasSubstr("--packing-strategy bfd --seq-length 8 --length-buckets 8,4")));
    EXPECT_THAT(
        testing::unwrapped(vocabpipe_in(folder, inspect + "padded --length-buckets 4,8").output),
        HasSubstr("in 3 sequences of 8 tokens and 3 of 4, 16.67 % padding"));
    EXPECT_THAT(testing::unwrapped(vocabpipe_in(folder, inspect + "padded").output),
                HasSubstr("4 documents in 6 sequences of 8 tokens, 37.50 % padding"));
    EXPECT_THAT(vocabpipe_in(folder, inspect + "padded --length-buckets 4").error,
                HasSubstr("the largest must be --seq-length 8; add it"));
    EXPECT_THAT(vocabpipe_in(folder, inspect + "padded --length-buckets auto").error,
                HasSubstr("depends on the model"));
    EXPECT_THAT(vocabpipe_in(folder, inspect + "wrapped --length-buckets 8").error,
                HasSubstr("needs --packing-strategy bfd or padded"));
    for (int round = 0; round < 2; ++round) {  // what the command wrote is replaced
        ASSERT_EQ(vocabpipe_in(folder, "data inspect set --length-distribution l.csv").exit_code,
                  0);
    }
    EXPECT_EQ(testing::read_file(folder / "l.csv"),
              "# vocabpipe document lengths: rows, which are tokens but the last\n"
              "length,count\n2,1\n3,1\n6,1\n19,1\n");
}

TEST(DataPrepare, TakesTheTextsOfJsonLines) {
    const TempFolder folder;
    testing::write_file(folder / "j.jsonl",
                        "\n{\"id\": 1, \"text\": \"hi\\n\\u00e9\"}\r\n\n{\"text\": \"\"}\n"
                        "{\"text\": \"o\\n\", \"body\": \"x\"}");
    testing::write_file(folder / "plain.txt", "{\nnone\n");
    const Outcome made =
        vocabpipe_in(folder, "data prepare --input j.jsonl plain.txt --output set");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    const std::vector<int32_t> plain{'{', '\n', 'n', 'o', 'n', 'e', '\n', 256};
    std::vector<int32_t> expected{'h', 'i', '\n', 0xc3, 0xa9, 256, 'o', '\n', 256};
    expected.insert(expected.end(), plain.begin(), plain.end());
    EXPECT_EQ(tokens_of(folder / "set"), expected);

    const auto refused = [&](const std::string& arguments) {
        const Outcome outcome = vocabpipe_in(folder, "data prepare --output no " + arguments);
        EXPECT_NE(outcome.exit_code, 0) << arguments;
        EXPECT_FALSE(folder.names().contains("no.bin"));
        return outcome.error;
    };
    EXPECT_EQ(refused("--input j.jsonl --json-key body"),
              "vocabpipe: error: j.jsonl line 2: has no \"body\"; strings are under \"text\"; "
              "choose one with --json-keys\n");
    EXPECT_EQ(refused("--input j.jsonl --json-keys id"),
              "vocabpipe: error: j.jsonl line 2: \"id\" is no string but number; strings are "
              "under \"text\"\n");
    EXPECT_THAT(refused("--input j.jsonl --document-separator line"),
                HasSubstr("--document-separator line: each line of j.jsonl is a document"));
    testing::write_file(folder / "bad.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\n");
    EXPECT_THAT(refused("--input bad.jsonl"), HasSubstr("bad.jsonl line 2: is no JSON: column 12"));
    testing::write_file(folder / "array.json", "[{\"text\": \"a\"}]\n");
    EXPECT_THAT(refused("--input array.json"), HasSubstr("write one object per line"));
    ASSERT_EQ(vocabpipe_in(folder, "data prepare --input array.json --input-format text --output a")
                  .exit_code,
              0);
    EXPECT_EQ(tokens_of(folder / "a").size(), 17U);
}

TEST(DataPrepare, LearnsTheVocabularyOfJsonLinesFromTheirTexts) {
    const TempFolder folder;
    std::string lines;
    std::string texts;
    for (int i = 0; i < 40; ++i) {
        std::string text = prose();
        text.resize(200 + 7 * static_cast<size_t>(i));
        texts += text + "\n";
        std::string escaped;
        for (const char c : text) escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
        lines += "{\"url\": \"zzzzqqqqzzzzqqqq\", \"text\": \"" + escaped + "\"}\n";
    }
    testing::write_file(folder / "j.jsonl", lines);
    testing::write_file(folder / "t.txt", texts);
    for (const char* input : {"j.jsonl", "t.txt"}) {
        const Outcome made =
            vocabpipe_in(folder, std::string("data prepare --tokenizer sentencepiece --vocab-size "
                                             "300 --input ") +
                                     input + " --output " + input[0]);
        ASSERT_EQ(made.exit_code, 0) << made.error;
    }
    EXPECT_EQ(testing::read_file(folder / "j.model"), testing::read_file(folder / "t.model"));
}

TEST(DataPrepare, WritesBytesThatInspectShows) {
    const TempFolder folder;
    testing::write_file(folder / "a.txt", "Hi\n\nyou\n");
    testing::write_file(folder / "b.txt", "\xc3\xa9");
    const Outcome made = vocabpipe_in(folder, "data prepare --input a.txt b.txt --output set");
    EXPECT_EQ(made.exit_code, 0);
    EXPECT_EQ(made.error, "");
    EXPECT_THAT(made.output,
                MatchesRegex("set: 2 documents, 12 tokens, 106 bytes, [0-9]+\\.[0-9] s\n"
                             "token type u16, vocabulary size 257\n"
                             "train with: --data-path set --vocab-size 257\n"));
    EXPECT_EQ(folder.names(), (Names{"a.txt", "b.txt", "set.bin", "set.idx"}));
    EXPECT_EQ(tokens_of(folder / "set"), (std::vector<int32_t>{'H', 'i', '\n', '\n', 'y', 'o', 'u',
                                                               '\n', 256, 0xc3, 0xa9, 256}));
    const Outcome seen = vocabpipe_in(folder, "data inspect set --vocab-size 257");
    EXPECT_EQ(seen.exit_code, 0);
    for (const char* line :
         {"format         Megatron indexed dataset\n", "documents      2\n", "tokens         12\n",
          "token type     u16\n", "token ids      10 to 256\n", "tokenizer      bytes\n",
          "first tokens   72 105 10 10 121 111 117 10 256 195 169 256\n",
          "first text     \"Hi\\n\\nyou\\n\"\n",
          "train with     --data-path set --vocab-size 257\n"}) {
        EXPECT_THAT(seen.output, HasSubstr(line));
    }
}

TEST(DataInspect, ShowsTheSetsOfABlendAndTheirParts) {
    const TempFolder folder;
    testing::write_file(folder / "a.txt", "one\ntwo\nthree\nfour\n");
    testing::write_file(folder / "raw.bin", testing::bytes_of<uint16_t>({1, 2, 3, 300}));
    ASSERT_EQ(
        vocabpipe_in(folder, "data prepare --input a.txt --output set --document-separator line")
            .exit_code,
        0);
    const Outcome one = vocabpipe_in(folder, "data inspect set --split 3,1");
    for (const char* line :
         {"train          3 documents, 14 tokens\n", "valid          1 document, 5 tokens\n",
          "documents end  with token 256\n",
          "train with     --data-path set --split 3,1 --vocab-size 257\n"}) {
        EXPECT_THAT(one.output, HasSubstr(line));
    }
    const Outcome two =
        vocabpipe_in(folder, "data inspect 3 raw.bin 1 set.bin --data-format raw-u16");
    EXPECT_EQ(two.exit_code, 0) << two.error;
    EXPECT_THAT(two.output,
                HasSubstr("train with     --data-path 3 raw.bin 1 set.bin --vocab-size 301"));
    EXPECT_THAT(two.output, HasSubstr("share          75.0"));
    const Outcome odd = vocabpipe_in(folder, "data inspect set 1 set");
    EXPECT_EQ(odd.exit_code, 2);
    EXPECT_THAT(odd.error, HasSubstr("data inspect: has 3 words"));
}

TEST(DataInspect, SaysThatOneDocumentCannotBeSplitAndNotToTrainWithIt) {
    const TempFolder folder;
    testing::write_file(folder / "a.txt", "one\ntwo\n");
    ASSERT_EQ(vocabpipe_in(folder, "data prepare --input a.txt --output set").exit_code, 0);
    const Outcome seen = vocabpipe_in(folder, "data inspect set --split 90,10");
    EXPECT_EQ(seen.exit_code, 0) << seen.error;
    EXPECT_THAT(seen.output, HasSubstr("train          1 document, 9 tokens\n"
                                       "valid          0 documents, 0 tokens\n"));
    EXPECT_THAT(
        seen.output,
        HasSubstr("cannot train   the valid part is empty; --split divides whole documents, and\n"
                  "               there is 1;"));
    EXPECT_THAT(seen.output, Not(HasSubstr("train with")));
    // No run reads the test part.
    EXPECT_THAT(vocabpipe_in(folder, "data inspect set --split 90,0,1").output,
                HasSubstr("train with     --data-path set --split 90,0,1"));
}

TEST(DataPrepare, SplitsDocumentsByBlankLinesOrLines) {
    const TempFolder folder;
    testing::write_file(folder / "a.txt", "a\nb\n\nc\n");
    EXPECT_THAT(vocabpipe_in(folder,
                             "data prepare --input a.txt --output set --tokenizer bytes "
                             "--document-separator blank-lines")
                    .output,
                HasSubstr("2 documents, 6 tokens"));
    EXPECT_THAT(vocabpipe_in(folder,
                             "data prepare --input a.txt --output set.bin "
                             "--document-separator line")
                    .output,
                HasSubstr("set: 3 documents, 6 tokens"));
}

TEST(DataPrepare, TrainsAVocabularyQuietlyAndReproducibly) {
    const TempFolder folder;
    testing::write_file(folder / "a.txt", prose());
    const std::string arguments =
        "data prepare --input a.txt --tokenizer sentencepiece --vocab-size 320 "
        "--document-separator blank-lines --output ";
    const Outcome made = vocabpipe_in(folder, arguments + "one");
    EXPECT_EQ(made.exit_code, 0);
    EXPECT_THAT(made.error, Not(HasSubstr("trainer"))) << "SentencePiece's log";
    EXPECT_THAT(made.output, HasSubstr("one: 30 documents, "));
    EXPECT_THAT(made.output, HasSubstr("vocabulary size 320"));
    EXPECT_EQ(folder.names(), (Names{"a.txt", "one.bin", "one.idx", "one.model"}));

    const auto tokenizer = open_tokenizer(folder / "one.model");
    EXPECT_EQ(tokenizer->vocab_size(), 320);
    const auto tokens = tokens_of(folder / "one");
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), tokenizer->end_of_document()), 30);
    const std::string text = prose();
    EXPECT_EQ(tokenizer->decode({tokens.begin(), std::find(tokens.begin(), tokens.end(), 1)}),
              text.substr(0, text.find("\n\n")));

    EXPECT_EQ(vocabpipe_in(folder, arguments + "two").exit_code, 0);
    for (const char* suffix : {".bin", ".idx", ".model"}) {
        EXPECT_EQ(testing::read_file((folder / "one") + suffix),
                  testing::read_file((folder / "two") + suffix));
    }

    // The model of one set serves another; inspect finds it beside the tokens or as given.
    EXPECT_EQ(vocabpipe_in(folder,
                           "data prepare --input a.txt --tokenizer-model one.model "
                           "--document-separator blank-lines --output three")
                  .exit_code,
              0);
    EXPECT_EQ(testing::read_file(folder / "three.bin"), testing::read_file(folder / "one.bin"));
    EXPECT_EQ(testing::read_file(folder / "three.model"), testing::read_file(folder / "one.model"));
    for (const char* arguments_of : {"data inspect one", "data inspect three",
                                     "data inspect three --tokenizer-model one.model"}) {
        const Outcome seen = vocabpipe_in(folder, arguments_of);
        EXPECT_THAT(seen.output, HasSubstr("first text     \"The pipeline of rank 0 waits"));
        EXPECT_THAT(seen.output, HasSubstr("--vocab-size 320\n"));
    }
}

TEST(DataPrepare, CountsWhatIsNoTextAndLearnsNothingFromBinary) {
    const TempFolder folder;
    testing::write_file(folder / "latin.txt", prose() + "caf\xe9 na\xefve\n");
    const Outcome bytes = vocabpipe_in(folder, "data prepare --input latin.txt --output bytes");
    EXPECT_EQ(bytes.exit_code, 0);
    EXPECT_THAT(bytes.error,
                HasSubstr("note: 2 of " + std::to_string(prose().size() + 11) +
                          " bytes are not UTF-8, first in latin.txt at byte " +
                          std::to_string(prose().size() + 3) + "; they are kept unchanged"));
    const std::string sentencepiece = " --tokenizer sentencepiece --vocab-size 320 --output sp";
    const Outcome pieces = vocabpipe_in(folder, "data prepare --input latin.txt" + sentencepiece);
    EXPECT_EQ(pieces.exit_code, 0) << pieces.error;
    EXPECT_THAT(pieces.error, HasSubstr("note: 2 of "));
    EXPECT_THAT(pieces.error, HasSubstr("each is replaced by U+FFFD"));

    testing::write_file(folder / "utf16.txt", std::string("w\0o\0r\0d\0s\0 \0", 12));
    std::string noise;
    for (int i = 0; i < 5000; ++i) noise += static_cast<char>(i * i % 251 + 5);
    testing::write_file(folder / "noise.txt", noise);
    for (const std::string file : {"utf16.txt", "noise.txt"}) {
        const Outcome refused = vocabpipe_in(folder, "data prepare --input " + file +
                                                         " --tokenizer sentencepiece "
                                                         "--vocab-size 320 --output binary");
        EXPECT_EQ(refused.exit_code, 3) << refused.error;
        EXPECT_THAT(refused.error, HasSubstr(file + ": "));
        EXPECT_THAT(refused.error, HasSubstr("this is not text; convert it to UTF-8"));
    }
    EXPECT_EQ(folder.names().count("binary.bin"), 0u);
}

TEST(DataPrepare, LeavesNothingBehindAtAFileSizeLimit) {
    const TempFolder folder;
    testing::write_file(folder / "a.txt", std::string(100'000, 'x'));
    const Outcome made = testing::run_shell("cd '" + (folder / "") +
                                            "' && (ulimit -f 10; '" VOCABPIPE_PROGRAM
                                            "' data prepare --input a.txt --output set)");
    EXPECT_EQ(made.exit_code, 1);
    EXPECT_EQ(made.output, "");
    EXPECT_EQ(made.error, "vocabpipe: error: set.bin: cannot write: File too large\n");
    EXPECT_EQ(folder.names(), Names{"a.txt"});
}

TEST(DataPrepare, LeavesNothingBehindWhenTerminated) {
    const TempFolder folder;
    {
        std::ofstream large(folder / "a.txt");
        for (int i = 0; i < 100'000; ++i) {
            large << "the pipeline of rank " << i << " waits for the vocabulary of " << i * 7
                  << "\n";
        }
    }
    testing::write_file(folder / "small.txt", prose());
    ASSERT_EQ(vocabpipe_in(folder,
                           "data prepare --input small.txt --output m --tokenizer "
                           "sentencepiece --vocab-size 320")
                  .exit_code,
              0);
    const Names before = folder.names();
    std::string inputs;
    for (int i = 0; i < 100; ++i) {
        inputs += " a.txt";  // a minute of work
    }
    std::signal(SIGHUP, SIG_DFL);  // which nohup has ignored, here and in what the test starts
    for (const int signal : {SIGTERM, SIGHUP}) {
        const Outcome made = testing::run_shell(
            "cd '" + (folder / "") +
            "' && '" VOCABPIPE_PROGRAM
            "' data prepare --output set --tokenizer-model m.model --input" +
            inputs + " & job=$!; cd '" + (folder / "") +
            "'; until ls set.bin.partial >/dev/null 2>&1; do sleep 0.05; done; sleep 0.3; "
            "kill -" +
            std::to_string(signal) + " $job; wait $job");
        EXPECT_EQ(made.exit_code, 128 + signal);
        EXPECT_EQ(folder.names(), before);
    }
}

TEST(DataPrepare, RemovesNoFileOfTheTokenizerThatItIsGiven) {
    const TempFolder folder;
    testing::write_file(folder / "a.txt", "text");
    const std::string json = testing::read_file(TOKENIZER_CASES "/gpt2/tokenizer.json");
    testing::write_file(folder / "set.model", json);  // where the output would have another one
    testing::write_file(folder / "set.idx", "");      // what makes set.* look like older output
    const Outcome made =
        vocabpipe_in(folder, "data prepare --input a.txt --output set --tokenizer-model set.model");
    EXPECT_NE(made.exit_code, 0);
    EXPECT_THAT(made.error, HasSubstr("set.model"));
    EXPECT_TRUE(testing::read_file(folder / "set.model") == json);
}

TEST(DataPrepare, TakesPatternsOfFilesAndLeavesOutBadLines) {
    const TempFolder folder;
    testing::write_file(folder / "b.jsonl", "{\"t\": \"two\"}\n{\"text\": \"no\"}\n[]\n");
    testing::write_file(folder / "a.jsonl", "{\"t\": \"one\"}\n");
    const std::string all = "data prepare --input '*.jsonl' --output set --json-keys t ";
    const Outcome made = vocabpipe_in(folder, all + "--max-bad-lines 2 --workers 3");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    EXPECT_EQ(made.error,
              "vocabpipe: note: left out b.jsonl line 2: has no \"t\"; strings are under \"text\"; "
              "choose one with --json-keys\n"
              "vocabpipe: note: left out b.jsonl line 3: is no JSON object but array\n");
    EXPECT_THAT(made.output, HasSubstr("left out: 2 bad lines\n"));
    EXPECT_EQ(tokens_of(folder / "set"),
              (std::vector<int32_t>{'o', 'n', 'e', 256, 't', 'w', 'o', 256}));

    const auto refused = [&](const std::string& arguments, int exit_code) {
        const Outcome outcome = vocabpipe_in(folder, arguments);
        EXPECT_EQ(outcome.exit_code, exit_code) << outcome.error;
        return outcome.error;
    };
    EXPECT_THAT(refused(all + "--max-bad-lines 1", 3),
                HasSubstr("b.jsonl: is where more than --max-bad-lines 1 lines had no document"));
    EXPECT_THAT(refused("data prepare --output x --input '*.txt'", 3),
                HasSubstr("*.txt: no file matches this pattern"));
}

TEST(DataPrepare, WritesTheTokensOfEveryKey) {
    const TempFolder folder;
    testing::write_file(folder / "a.jsonl",
                        "{\"t\": \"one\", \"s\": \"1\"}\n{\"t\": \"two\"}\n{\"s\": \"2\"}\n");
    const std::string all = "data prepare --input a.jsonl --output set --json-keys ";
    const Outcome made = vocabpipe_in(folder, all + "t s --max-bad-lines 1");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    EXPECT_EQ(tokens_of(folder / "set_t_document"),
              (std::vector<int32_t>{'o', 'n', 'e', 256, 't', 'w', 'o', 256}));
    EXPECT_EQ(tokens_of(folder / "set_s_document"), (std::vector<int32_t>{'1', 256, '2', 256}));
    EXPECT_THAT(made.output, HasSubstr("train with: --data-path set_t_document "));
    EXPECT_THAT(made.output, HasSubstr("train with: --data-path set_s_document "));
    EXPECT_THAT(made.error, HasSubstr("left out a.jsonl line 3: has no \"t\""));
    EXPECT_THAT(made.error, HasSubstr("left out a.jsonl line 2: has no \"s\""));
    EXPECT_FALSE(std::filesystem::exists(folder / "set.idx"));
    // The same as one after the other.
    const Outcome alone = vocabpipe_in(folder, all + "s --max-bad-lines 1");
    ASSERT_EQ(alone.exit_code, 0) << alone.error;
    for (const char* suffix : {".bin", ".idx"}) {
        EXPECT_EQ(testing::read_file(folder / "set" + std::string(suffix)),
                  testing::read_file(folder / "set_s_document" + std::string(suffix)));
    }
}

TEST(DataPrepare, RefusesSeveralKeysThatAreNoTwoSets) {
    const TempFolder folder;
    testing::write_file(folder / "a.jsonl", "{\"t\": \"one\", \"s\": \"1\"}\n");
    testing::write_file(folder / "b.txt", "plain");
    testing::write_file(folder / "c.jsonl", "{\"text\": \"chat\", \"learn\": [[0, 2]]}\n");
    const auto refused = [&](const std::string& arguments) {
        const Outcome outcome = vocabpipe_in(folder, "data prepare --output set " + arguments);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.error;
        EXPECT_FALSE(std::filesystem::exists(folder / "set_t_document.idx"));
        return outcome.error;
    };
    EXPECT_THAT(refused("--input a.jsonl --json-keys t s t"),
                HasSubstr("--json-keys t s t: has t twice"));
    EXPECT_THAT(refused("--input a.jsonl --json-keys t ''"), HasSubstr("must not be empty"));
    EXPECT_THAT(refused("--input a.jsonl --json-keys t a/b"), HasSubstr("prepare a/b alone"));
    EXPECT_THAT(refused("--input a.jsonl b.txt --json-keys t s"),
                HasSubstr("--json-keys t s: b.txt is plain text, which has no keys"));
    EXPECT_THAT(refused("--input c.jsonl --json-keys text learn"),
                HasSubstr("c.jsonl has chats, of which one key is what is learnt"));
    EXPECT_THAT(
        refused("--input a.jsonl --json-keys t s --tokenizer sentencepiece --vocab-size 99"),
        HasSubstr("would train a vocabulary for each"));
}

TEST(DataInspect, ReadsLlmcAndRawFiles) {
    const TempFolder folder;
    std::string shard = testing::bytes_of<int32_t>({20240520, 1, 3});
    shard.resize(1024, '\0');
    shard += testing::bytes_of<uint16_t>({5, 50256, 7});
    testing::write_file(folder / "x_000.bin", shard);
    testing::write_file(folder / "x_001.bin", shard);
    const Outcome llmc = vocabpipe_in(folder, "data inspect 'x_*.bin'");
    EXPECT_EQ(llmc.exit_code, 0);
    EXPECT_THAT(llmc.output, HasSubstr("llm.c GPT-2 shard\nfiles          2\ntokens         6\n"));
    EXPECT_THAT(llmc.output, HasSubstr("--vocab-size 50257\n"));
    testing::write_file(folder / "raw", testing::bytes_of<uint32_t>({100000, 1}));
    const Outcome raw = vocabpipe_in(folder, "data inspect raw --data-format raw-u32");
    EXPECT_THAT(raw.output, HasSubstr("token ids      1 to 100000\n"));
    EXPECT_THAT(raw.output, HasSubstr("--vocab-size 100001 --data-format raw-u32\n"));
    testing::write_file(folder / "empty", "");
    const Outcome empty = vocabpipe_in(folder, "data inspect empty --data-format raw-u16");
    EXPECT_EQ(empty.exit_code, 0);
    EXPECT_THAT(empty.output, HasSubstr("tokens         0\n"));
}

TEST(Tool, SaysItsVersionAndHelp) {
    const TempFolder folder;
    const Outcome version = vocabpipe_in(folder, "--version");
    EXPECT_EQ(version.exit_code, 0);
    EXPECT_EQ(version.output, "vocabpipe " VOCABPIPE_VERSION "\n");
    for (const char* command :
         {"--help", "data --help", "data prepare --help", "data inspect --help"}) {
        const Outcome help = vocabpipe_in(folder, command);
        EXPECT_EQ(help.exit_code, 0) << command;
        EXPECT_EQ(help.error, "");
        EXPECT_THAT(help.output, HasSubstr("Usage: vocabpipe"));
    }
}

struct BadInput {
    const char* arguments;
    int exit_code;
    const char* message;
};

/// Its number and its arguments, as far as a test name takes them.
std::string row_name(const ::testing::TestParamInfo<BadInput>& info) {
    std::string name = std::to_string(info.index) + "_";
    for (const char* c = info.param.arguments; *c != 0; ++c) {
        if (std::isalnum(static_cast<unsigned char>(*c)) != 0) {
            name += *c;
        } else if (name.back() != '_') {
            name += '_';
        }
    }
    return name;
}

void PrintTo(const BadInput& row, std::ostream* out) {
    *out << "vocabpipe " << row.arguments;
}

class BadInputs : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadInputs, AreOneLineOnStderrWithTheExitCode) {
    const TempFolder folder;
    testing::write_file(folder / "a.txt", prose());
    testing::write_file(folder / "a\nb.txt", "");
    testing::write_file(folder / "empty.txt", "");
    testing::write_file(folder / "blank.txt", "\n \n\n");
    testing::write_file(folder / "a.gz", "\x1f\x8b\x08 abc");
    testing::write_file(folder / "self.bin", "text");
    testing::write_file(folder / "raw", testing::bytes_of<uint16_t>({1, 2, 60000}));
    testing::write_file(folder / "half.bin", "xx");
    testing::write_file(folder / "cut.idx", "MMIDIDX");
    std::filesystem::create_directory(folder / "sub");
    const Names before = folder.names();
    const Outcome outcome = vocabpipe_in(folder, GetParam().arguments);
    EXPECT_EQ(outcome.exit_code, GetParam().exit_code) << GetParam().arguments;
    EXPECT_THAT(outcome.error, StartsWith("vocabpipe: error: "));
    EXPECT_THAT(outcome.error, HasSubstr(GetParam().message)) << GetParam().arguments;
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
    EXPECT_EQ(outcome.output, "");
    EXPECT_EQ(folder.names(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadInputs,
    ::testing::Values(
        // The command line: 2.
        BadInput{"", 2, "vocabpipe: requires a subcommand: data, "},
        BadInput{"nonsense", 2, "see vocabpipe --help"},
        BadInput{"data", 2,
                 "requires a subcommand: prepare, inspect, filter; see vocabpipe data --help"},
        BadInput{"data prepare", 2, "--input is required; see vocabpipe data prepare --help"},
        BadInput{"data prepare --input a.txt", 2, "--output is required"},
        BadInput{"data prepare --input --output x", 2,
                 "--input: expected a value, got the flag --output"},
        BadInput{"data prepare --input a.txt --output x --colour", 2, "--colour"},
        BadInput{"data prepare --input a.txt --output x --tokenizer words", 2, "words"},
        BadInput{"data prepare --input a.txt --output x --document-separator tab", 2, "tab"},
        BadInput{"data prepare --input a.txt --output x --vocab-size 0", 2, "--vocab-size"},
        BadInput{"data prepare --input a.txt --output x --vocab-size -7", 2, "--vocab-size"},
        BadInput{"data prepare --input a.txt --output x --vocab-size 1e4", 2, "--vocab-size"},
        BadInput{"data prepare --input a.txt --output x --vocab-size 99999999999999999999", 2,
                 "--vocab-size"},
        BadInput{"data prepare --input a.txt --output x --vocab-size 300", 2,
                 "use --tokenizer sentencepiece"},
        BadInput{"data prepare --input a.txt --output x --tokenizer sentencepiece", 2,
                 "requires --vocab-size"},
        BadInput{"data prepare --input a.txt --output x --tokenizer bytes --tokenizer-model m", 2,
                 "--tokenizer-model: requires --tokenizer sentencepiece"},
        BadInput{"data prepare --input a.txt --output x --tokenizer sentencepiece --vocab-size 200",
                 2, "is too small for this text"},
        BadInput{"data prepare --input a.txt --output x --tokenizer sentencepiece --vocab-size "
                 "50000",
                 2, "is too large for this text, which yields at most"},
        BadInput{"data prepare --input a.txt --output ''", 2, "--output"},
        BadInput{"data prepare --input a.txt --output sub/", 2, "is a folder"},
        BadInput{"data prepare --input self.bin --output self", 2,
                 "--output self.bin: is also an input of this command and would be replaced"},
        BadInput{"data inspect", 2, "path is required"},
        BadInput{"data inspect raw --data-format raw-u64", 2, "raw-u64"},
        BadInput{"data inspect raw --data-format raw-u16 --vocab-size 0", 2, "--vocab-size"},
        // Input files: 3.
        BadInput{"data prepare --input none.txt --output x", 3, "none.txt: cannot read: No such"},
        BadInput{"data prepare --input a.txt none.txt --output x", 3, "none.txt"},
        BadInput{"data prepare --input 'no\nsuch' --output x", 3, "no such: cannot read"},
        BadInput{"data prepare --input sub --output x", 3,
                 "sub: is not a regular file but a folder"},
        BadInput{"data prepare --input /dev/null --output x", 3, "not a regular file"},
        BadInput{"data prepare --input empty.txt --output x", 3, "empty.txt: no text"},
        BadInput{"data prepare --input blank.txt --output x --document-separator line", 3,
                 "no text"},
        BadInput{"data prepare --input empty.txt --output x --tokenizer sentencepiece "
                 "--vocab-size 300",
                 3, "no text to train a vocabulary on"},
        BadInput{"data prepare --input a.gz --output x", 3, "a.gz: the gzip data is"},
        BadInput{"data prepare --input a.txt --output x --tokenizer-model none", 3, "none: cannot"},
        BadInput{
            "data prepare --input a.txt --output x --tokenizer sentencepiece "
            "--tokenizer-model " TOKENIZER_CASES "/gpt2",
            2, "--tokenizer sentencepiece: " TOKENIZER_CASES "/gpt2 is one of huggingface; remove"},
        BadInput{"data prepare --input a.txt --output x --tokenizer-model a.txt", 3,
                 "a.txt: is not a SentencePiece model"},
        BadInput{"data inspect none", 3, "none: does not exist"},
        BadInput{"data inspect ''", 2, "must not be empty"},
        BadInput{"data inspect a.txt", 3, "plain text"},
        BadInput{"data inspect a.gz", 3, "gzip-compressed data"},
        BadInput{"data inspect raw", 3, "--data-format raw-u16 or raw-u32"},
        BadInput{"data inspect raw --data-format raw-u32", 3, "not a multiple of 4"},
        BadInput{"data inspect raw --data-format raw-u16 --vocab-size 60000", 3,
                 "raw: token 2 is 60000, but --vocab-size 60000 allows only 0 to 59999"},
        BadInput{"data inspect half", 3, "half.idx: does not exist"},
        BadInput{"data inspect cut", 3, "cut.idx: is not an index"},
        BadInput{"data inspect sub", 3, "a folder"},
        // Output files: 1.
        BadInput{"data prepare --input a.txt --output none/x", 1,
                 "none/x.bin: cannot create: No such file or directory"},
        BadInput{"data prepare --input a.txt --output /proc/x", 1, "/proc/x.bin: cannot create"}),
    row_name);

}  // namespace
}  // namespace vocabpipe
