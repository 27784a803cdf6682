// SPDX-License-Identifier: Apache-2.0
// The table of flags: nothing of a row may be missing, and every row is compared between ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/model/config_json/model_config_json.hpp"
#include "src/model/published/published_models.hpp"
#include "src/support/flag.hpp"
#include "src/tool/support/flag_parser.hpp"
#include "src/tool/train/train_program.hpp"
#include "src/train/options/train_flags.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/parameter_count.hpp"
#include "vocabpipe/plan.hpp"

namespace vocabpipe::tool {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;
using Words = std::vector<std::string>;

/// What a flag may be given, other than what it has.
Words another_value(const Flag& flag) {
    static const std::map<std::string, Words> kForms{{"--rampup-batch-size", {"2", "2", "8"}},
                                                     {"--param-group", {"*:weight_decay=0"}},
                                                     {"--schedule-costs", {"3,4"}},
                                                     {"--max-shard-size", {"1MB"}}};
    if (const auto found = kForms.find(flag.name()); found != kForms.end()) return found->second;
    for (const std::string& choice : flag.choices) {
        if (choice != flag.text()) return {choice};
    }
    if (std::holds_alternative<std::string*>(flag.value) ||
        std::holds_alternative<std::vector<std::string>*>(flag.value)) {
        return {"x"};
    }
    for (const std::string number : {"3", "5", "0.25", "0.75"}) {
        try {
            if (number == flag.text()) continue;
            flag.set({number});
            return {number};
        } catch (const UsageError&) {  // not in its range
        }
    }
    return {};
}

TEST(Flags, OfTrainGptHaveOneRowEach) {
    TrainProgram program;
    std::set<std::string> rows;
    for (const FlagGroup& group : program.flags()) {
        EXPECT_FALSE(group.title.empty());
        for (const Flag& flag : group.flags) {
            EXPECT_TRUE(rows.insert(flag.name()).second) << flag.name() << " has two rows";
        }
    }
}

TEST(Flags, HaveTextUnitAndChoicesThatTheyTake) {
    TrainProgram program;
    for (const FlagGroup& group : program.flags()) {
        for (const Flag& flag : group.flags) {
            EXPECT_TRUE(flag.name().starts_with("--")) << flag.names;
            EXPECT_GT(flag.help.size(), 5U) << flag.names;
            EXPECT_EQ(flag.unit.empty(), flag.is_switch()) << flag.names;
            for (const std::string& choice : flag.choices) {
                EXPECT_NO_THROW(flag.set({choice})) << flag.names << " " << choice;
                EXPECT_EQ(flag.text(), choice) << flag.names;
            }
            if (flag.is_switch()) continue;
            EXPECT_THAT(testing::message_of<UsageError>([&] { flag.set({""}); }),
                        HasSubstr(flag.name() + " \"\": must not be empty"));
        }
    }
}

TEST(Flags, AreComparedBetweenRanksUnlessTheirRowSaysOtherwise) {
    std::vector<std::string> by_presence;
    std::vector<std::string> by_others;
    std::vector<std::string> samples;
    TrainProgram program;
    for (const FlagGroup& group : program.flags()) {
        for (const Flag& flag : group.flags) {
            if (flag.decides == Decides::samples) samples.push_back(flag.name());
            if (flag.ranks == RanksCompare::nothing) {
                if (group.title != kMegatronGroup) by_others.push_back(flag.name());
                continue;
            }
            EXPECT_NE(group.title, kMegatronGroup)
                << flag.name() << ": sets nothing, or what another flag sets";
            if (flag.ranks == RanksCompare::presence) by_presence.push_back(flag.name());
            if (flag.meaning) continue;  // below
            const std::vector<std::string> before = compared_flags({group});
            if (flag.is_switch()) {
                *std::get<bool*>(flag.value) ^= true;
            } else {
                flag.set(another_value(flag));
            }
            const std::vector<std::string> after = compared_flags({group});
            ASSERT_EQ(before.size(), after.size());
            std::vector<std::string> changed;
            for (size_t i = 0; i < before.size(); ++i) {
                if (before[i] != after[i]) changed.push_back(after[i]);
            }
            EXPECT_THAT(changed, Contains(StartsWith(flag.name() + " ")));
        }
    }
    // Who adds one to these says why in its row.
    EXPECT_THAT(by_presence,
                UnorderedElementsAre("--product-choices", "--data-path", "--train-data-path",
                                     "--valid-data-path", "--test-data-path", "--data-subset",
                                     "--columns", "--multiple-choice-path"));
    EXPECT_THAT(by_others, UnorderedElementsAre(
                               "--model", "--group-query-attention", "--multi-latent-attention",
                               "--swiglu", "--normalization", "--position-embedding-type",
                               "--moe-router-score-function", "--bf16", "--recompute-activations"));
    EXPECT_THAT(samples, UnorderedElementsAre("--seq-length", "--seed", "--packing-strategy",
                                              "--length-buckets"));
}

TEST(Flags, ThatSayTogetherWhatAModelIsAreComparedByThat) {
    const auto lines = [](const std::string& arguments) {
        TrainProgram program;
        std::istringstream text("--transport threads --ranks 1 " + arguments);
        const Words words{std::istream_iterator<std::string>(text), {}};
        const Command command = program.command();
        program.resolve(read_command_line(command, words).given);
        return compared_flags(program.flags());
    };
    const std::vector<std::string> plain = lines("");
    for (const std::string arguments :
         {"--bf16", "--recompute-activations", "--model-type llama", "--norm-epsilon 1e-3",
          "--untie-embeddings-and-output-weights", "--lr-decay-iters 50",
          "--swiglu --normalization RMSNorm --position-embedding-type rope"}) {
        EXPECT_NE(lines(arguments), plain) << arguments;
    }
    EXPECT_NE(lines("--model-type llama --rotary-base 500"), lines("--model-type llama"));
    EXPECT_NE(lines("--model-type gpt_neox --rotary-percent 0.5"), lines("--model-type gpt_neox"));
    const std::string experts = "--model-type qwen3_moe --num-layers 4 ";
    for (const char* const more : {"--moe-layer-freq 2", "--moe-layer-freq 0,1,1,1",
                                   "--moe-router-pre-softmax", "--num-experts 4"}) {
        EXPECT_NE(lines(experts + more), lines(experts)) << more;
    }
    EXPECT_EQ(lines(experts + "--moe-layer-freq [1,0,1,0]"), lines(experts + "--moe-layer-freq 2"));
    EXPECT_EQ(lines(experts + "--moe-layer-freq 1"), lines(experts));
    EXPECT_EQ(lines("--model-type phi3 --rotary-percent 1"), lines("--model-type phi3"));
    EXPECT_EQ(lines("--bf16"), lines("--dtype bf16"));
    // A model's file has a type, too.
    const std::string file = ::testing::TempDir() + "flags_test_config.json";
    std::ofstream(file) << print_model_config(TrainOptions().model);
    const std::string model = "--seq-length 8 --model " + file;
    EXPECT_THAT(lines(model), Contains("--dtype fp32"));
    for (const std::string flag : {" --dtype bf16", " --bf16"}) {
        EXPECT_THAT(lines(model + flag), Contains("--dtype bf16")) << flag;
    }
    EXPECT_EQ(lines("--lr 0.0003"), plain);
    EXPECT_THAT(plain, Contains("--lr 0.0003"));
    EXPECT_THAT(plain, Contains("--adam-beta2 0.95"));
}

TEST(Flags, OfTrainingAndPlanningNameTheSamePublishedModels) {
    const auto resolved = [](const std::string& arguments) {
        TrainProgram program;
        std::istringstream text("--transport threads --ranks 1 --seq-length 512 " + arguments);
        const Words words{std::istream_iterator<std::string>(text), {}};
        const Command command = program.command();
        program.resolve(read_command_line(command, words).given);
        return program.options().model;
    };
    std::string all;
    for (const std::string& name : published_models()) {
        all += (all.empty() ? "" : ", ") + name;
        const ModelConfig planned = load_model(name).config;
        const ModelConfig trained = resolved("--model " + name);
        EXPECT_EQ(parameter_count(trained), parameter_count(planned)) << name;
        EXPECT_EQ(trained.vocab_size, planned.vocab_size) << name;
        EXPECT_EQ(trained.num_layers, planned.num_layers) << name;
        EXPECT_EQ(trained.seq_length, 512) << name;
    }
    EXPECT_EQ(known_models(), all);
    EXPECT_EQ(resolved("--model llama-3-8b").rope.theta, 5e5);
    const ModelConfig retokenized = resolved("--model llama-3-8b --vocab-size 32000");
    EXPECT_EQ(retokenized.vocab_size, 32000);
    EXPECT_EQ(retokenized.num_layers, 32);
    EXPECT_FALSE(retokenized.begin_of_text);  // 128000 is no token of it
    EXPECT_TRUE(retokenized.ends_of_text.empty());
    EXPECT_EQ(resolved("--model gemma-2-9b --vocab-size 32000").begin_of_text, 2);
    EXPECT_EQ(resolved("--model llama-3-8b --mtp-num-layers 2").mtp_num_layers, 2);
    for (const std::string flag : {"--num-layers 2", "--hidden-size 64", "--model-type llama",
                                   "--untie-embeddings-and-output-weights"}) {
        const std::string name = flag.substr(0, flag.find(' '));
        EXPECT_EQ(testing::message_of<UsageError>([&] { resolved("--model llama-3-8b " + flag); }),
                  name + ": --model llama-3-8b already sets this; remove one of the two");
    }
    EXPECT_THAT(testing::message_of<UsageError>([&] { resolved("--model llama3-8b"); }),
                HasSubstr("did you mean llama-3-8b?"));
    EXPECT_THAT(
        testing::message_of<UsageError>([&] { resolved("--model gpt3-175b --seq-length 4096"); }),
        HasSubstr("--seq-length 4096: gpt3-175b has 2048 positions; use at most 2048"));
}

/// What a number of each type is refused with.
TEST(FlagValues, AreDecimalInRangeAndFinite) {
    int whole = 1;
    uint64_t seed = 1;
    float real = 1;
    const auto refusal = [](FlagValue value, const std::string& word, FlagRange range) {
        const Flag flag{.names = "--x", .value = value, .help = "x", .range = range};
        return testing::message_of<UsageError>([&] { flag.set({word}); });
    };
    for (const std::string word :
         {"wide", "010", "1e3", "0x10", "1.5", " 1", "99999999999999999999"}) {
        EXPECT_THAT(refusal(&whole, word, {}), HasSubstr("--x " + word + ": is not a number"));
    }
    EXPECT_THAT(refusal(&seed, "-1", {}), HasSubstr("--x -1: is not a number"));
    EXPECT_EQ(refusal(&whole, "3000000000", {}), "--x 3000000000: must be at most 2147483647");
    EXPECT_EQ(refusal(&whole, "-1", at_least(0)), "--x -1: must be at least 0");
    EXPECT_EQ(refusal(&whole, "11", between(1, 10)), "--x 11: must be at most 10");
    EXPECT_EQ(refusal(&whole, "16777217", between(1, 1 << 24)),
              "--x 16777217: must be at most 16777216");
    for (const std::string word : {"nan", "inf", "1e999", "1e39", "0x1p3"}) {
        EXPECT_THAT(refusal(&real, word, {}), HasSubstr("use a finite decimal number"));
    }
    EXPECT_EQ(refusal(&real, "1", fraction_below_1()), "--x 1: must be at least 0 and below 1");
    EXPECT_EQ(refusal(&real, "0", above(0)), "--x 0: must be a finite positive number");
    EXPECT_EQ(refusal(&real, "-0.5", at_least(0)), "--x -0.5: must be a finite number, at least 0");
    EXPECT_EQ(whole, 1);
    EXPECT_EQ(real, 1);
}

TEST(FlagValues, AreNamesWithTheNearestOne) {
    std::string text;
    const Flag flag{.names = "--x", .value = &text, .help = "x", .choices = {"host", "cuda"}};
    EXPECT_EQ(testing::message_of<UsageError>([&] { flag.set({"cudo"}); }),
              "--x cudo: must be one of host, cuda; did you mean cuda?");
}

TEST(FlagValues, AreSizesWithAUnit) {
    EXPECT_EQ(bytes_from("1000"), 1000U);
    EXPECT_EQ(bytes_from("500MB"), 500'000'000U);
    EXPECT_EQ(bytes_from("2GiB"), uint64_t{2} << 30);
    EXPECT_EQ(bytes_from("3 kb"), 3000U);
    EXPECT_EQ(bytes_from("16e"), 16'000'000'000'000'000'000U);
    for (const char* text : {"", "MB", "5XB", "1.5GB", "-1", "17EiB", "5 GBs"}) {
        EXPECT_EQ(bytes_from(text), std::nullopt) << text;
    }
}

/// A program with one command, which has a row of each kind.
class CommandLines : public ::testing::Test {
protected:
    CommandLine read(const Words& words) { return read_command_line(program_, words); }
    std::string refusal(const Words& words) {
        return testing::message_of<UsageError>([&] { (void)read(words); });
    }

    std::string file_;
    int ranks_ = 0;
    double share_ = 0.5;
    bool json_ = false;
    Words inputs_;
    Words names_;
    const Command program_{
        .name = "program",
        .commands = {
            {.name = "show",
             .description = "Show it\nat length",
             .flags = {{.flags = {{.names = "FILE", .value = &file_},
                                  {.names = "--ranks,-r", .value = &ranks_, .absent = 0},
                                  {.names = "--share", .value = &share_, .excludes = {"--ranks"}},
                                  {.names = "--json", .value = &json_}}},
                       {.title = "Lists",
                        .flags = {{.names = "--input", .value = &inputs_, .repeats = true},
                                  {.names = "--names", .value = &names_}}}}}}};
};

TEST_F(CommandLines, SetValuesAndSayWhatWasGiven) {
    const CommandLine line = read({"show", "-r", "2", "x.csv", "--input", "a", "b", "--input", "c",
                                   "--names", "a", "b", "--names", "c"});
    EXPECT_EQ(line.command->name, "show");
    EXPECT_EQ(line.answer, "");
    EXPECT_EQ(file_, "x.csv");
    EXPECT_EQ(ranks_, 2);
    EXPECT_FALSE(json_);
    EXPECT_EQ(inputs_, Words({"a", "b", "c"})) << "all times";
    EXPECT_EQ(names_, Words({"c"})) << "the last time";
    EXPECT_EQ(line.given, GivenFlags({{"--input", {"a", "b", "c"}},
                                      {"--names", {"c"}},
                                      {"--ranks", {"2"}},
                                      {"FILE", {"x.csv"}}}));
}

TEST_F(CommandLines, AreRefusedForWhatIsMissingOrTooMuch) {
    EXPECT_EQ(refusal({"show"}), "FILE is required; see program show --help");
    EXPECT_EQ(refusal({"show", "x", "y"}), "y: unexpected argument; see program show --help");
    EXPECT_EQ(refusal({"show", ""}), "FILE \"\": must not be empty");
    EXPECT_EQ(refusal({"show", "x", "--share", "1", "--ranks", "1"}),
              "--ranks excludes --share; see program show --help");
    EXPECT_EQ(refusal({"show", "x", "--json=yes"}),
              "--json yes: is a switch; omit the value, or use true or false");
}

TEST_F(CommandLines, TakeNoFlagForAValueUnlessItIsWrittenSo) {
    EXPECT_EQ(refusal({"show", "x", "--names", "--json"}),
              "--names: expected a value, got the flag --json; write --names=--json if that is the "
              "value");
    EXPECT_EQ(refusal({"show", "x", "--share", "-r", "2"}),
              "--share: expected a value, got the flag -r; write --share=-r if that is the value");
    EXPECT_EQ(refusal({"show", "x", "-r", "--names=a"}),
              "-r: expected a value, got the flag --names=a; write --ranks=--names=a if that is "
              "the value");
    read({"show", "x", "--names=--json", "--input", "-"});
    EXPECT_EQ(names_, Words({"--json"}));
    EXPECT_EQ(inputs_, Words({"-"}));
    EXPECT_FALSE(json_);
    read({"show", "x", "--share", "-0.5"});
    EXPECT_EQ(share_, -0.5);
}

TEST(FlagValues, AreNoFlags) {
    TrainProgram train;
    const Command command = train.command();
    for (const FlagGroup& group : command.flags) {
        for (const Flag& flag : group.flags) {
            if (flag.is_switch()) continue;
            EXPECT_THAT(testing::message_of<UsageError>([&] {
                            (void)read_command_line(command, {flag.name(), "--bf16"});
                        }),
                        StartsWith(flag.name() + ": expected a value, got the flag --bf16"));
        }
    }
}

TEST_F(CommandLines, AskForHelp) {
    EXPECT_EQ(read({"show", "--help"}).answer,
              "Show it\n"
              "at length\n"
              "Usage: program show [OPTIONS] FILE\n"
              "\n"
              "Positionals:\n"
              "  FILE\n"
              "\n"
              "Options:\n"
              "  -h, --help                  Print this help message and exit\n"
              "  --ranks, -r N\n"
              "  --share X                   (default: 0.5)\n"
              "  --json\n"
              "\n"
              "Lists:\n"
              "  --input TEXT ...\n"
              "  --names TEXT ...\n");
    EXPECT_THAT(read({"-h"}).answer,
                HasSubstr("Subcommands:\n  show                        Show it\n"));
}

}  // namespace
}  // namespace vocabpipe::tool
