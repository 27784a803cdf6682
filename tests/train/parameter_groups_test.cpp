// SPDX-License-Identifier: Apache-2.0
#include "src/model/parameter_groups.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/train/options/check_options.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<LogicalParameter> tensors() {
    const auto tensor = [](const char* name, int64_t rows) {
        LogicalParameter p;
        p.name = name;
        p.rows = rows;
        p.cols = 1'000'000;
        p.weight_decay = rows > 1;
        return p;
    };
    return {tensor("transformer.wte.weight", 2), tensor("transformer.h.0.attn.c_attn.weight", 3),
            tensor("transformer.h.0.attn.c_attn.bias", 1),
            tensor("transformer.h.10.attn.c_attn.weight", 3), tensor("lm_head.weight", 2)};
}

std::vector<ParameterGroup> groups(const std::vector<std::string>& texts) {
    std::vector<ParameterGroup> parsed;
    for (const std::string& text : texts) parsed.push_back(parse_parameter_group(text));
    return parsed;
}

TEST(ParameterGroups, GiveTheFirstMatchItsWeightDecayAndFactor) {
    const auto all = groups({"*wte*:weight_decay=0", "transformer.h.?.*:lr_mult=0.5",
                             "transformer.*:weight_decay=0.2,lr_mult=2"});
    const auto expect = [&](const char* name, bool decays, float decay, float multiplier) {
        const ParameterSettings settings = parameter_settings(all, name, decays, 0.1F);
        EXPECT_EQ(settings.weight_decay, decay) << name;
        EXPECT_EQ(settings.lr_multiplier, multiplier) << name;
    };
    expect("transformer.wte.weight", true, 0, 1);
    expect("transformer.h.0.attn.c_attn.weight", true, 0.1F, 0.5F);
    expect("transformer.h.0.attn.c_attn.bias", false, 0, 0.5F);    // as without the group
    expect("transformer.h.10.attn.c_attn.weight", true, 0.2F, 2);  // ? is one character
    expect("transformer.ln_f.bias", false, 0.2F, 2);               // said, so it decays
    expect("lm_head.weight", true, 0.1F, 1);
}

TEST(ParameterGroups, ThatAreNotWrittenRightAreRefused) {
    for (const char* text :
         {"", "*", "*:", ":weight_decay=0", "*:decay=0", "*:weight_decay",
          "*:weight_decay=", "*:weight_decay=x", "*:weight_decay=-1", "*:weight_decay=nan",
          "*:lr_mult=inf", "*:lr_mult=1,", "*:lr_mult=1,lr_mult=2", "*:weight_decay=0 ,lr_mult=1",
          "*:freeze,lr_mult=1", "*:lr_mult=1,freeze", "*:freeze=1", "*:frozen", ":freeze"}) {
        try {
            (void)parse_parameter_group(text);
            ADD_FAILURE() << text;
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), StartsWith(std::string("--param-group ") + text + ": "));
            EXPECT_THAT(error.what(), HasSubstr("use 'PATTERN:weight_decay=0,lr_mult=0.1' with one "
                                                "or both settings, or 'PATTERN:freeze'"));
        }
    }
}

TEST(ParameterGroups, AreOfAdaptersWhereThereAreAny) {
    std::vector<LogicalParameter> all = tensors();
    for (const char* name : {"c_attn.lora_A.weight", "c_attn.lora_B.weight"}) {
        all.push_back(all.front());
        all.back().name = name;
        all.back().adapter = true;
    }
    EXPECT_EQ(frozen_parameters({}, all),
              (std::vector<bool>{true, true, true, true, true, false, false}));
    EXPECT_EQ(frozen_parameters(groups({"*.lora_A.*:freeze"}), all),
              (std::vector<bool>{true, true, true, true, true, true, false}));
    EXPECT_NO_THROW(check_parameter_groups(groups({"*.lora_B.*:lr_mult=16"}), all));
    try {
        check_parameter_groups(groups({"*wte*:lr_mult=2"}), all);
        ADD_FAILURE();
    } catch (const UsageError& error) {
        EXPECT_EQ(
            std::string(error.what()),
            "--param-group *wte*:lr_mult=2: matches no adapter, and all else is frozen; names "
            "look like c_attn.lora_A.weight and c_attn.lora_B.weight");
    }
    const std::string lines =
        describe_parameter_groups(groups({"*.lora_B.*:lr_mult=16"}), all, 0.1F);
    EXPECT_THAT(lines, HasSubstr("group '*.lora_B.*': 1 tensors"));
    EXPECT_THAT(lines, HasSubstr("group of all other tensors: 1 tensors"));
}

TEST(ParameterGroups, WithoutATensorAreRefused) {
    const auto message = [](const std::vector<std::string>& texts) -> std::string {
        try {
            check_parameter_groups(groups(texts), tensors());
        } catch (const UsageError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(message({"*wte*:weight_decay=0", "*bias:weight_decay=0"}), "");
    EXPECT_THAT(message({"*norm*:weight_decay=0"}),
                HasSubstr("*norm*:weight_decay=0: matches no tensor of the model; names look like "
                          "transformer.wte.weight and lm_head.weight"));
    EXPECT_THAT(message({"transformer.*:lr_mult=2", "*wte*:weight_decay=0"}),
                HasSubstr("*wte*:weight_decay=0: matches only tensors of earlier groups, such as "
                          "transformer.wte.weight"));
}

TEST(ParameterGroups, FreezeTheTensorsWhoseFirstMatchSaysSo) {
    EXPECT_TRUE(frozen_parameters(groups({"*:lr_mult=0"}), tensors()).empty());
    EXPECT_EQ(frozen_parameters(groups({"*.bias:lr_mult=2", "*.h.*:freeze"}), tensors()),
              (std::vector<bool>{false, true, false, true, false}));
    std::vector<LogicalParameter> router = tensors();
    router.back().correction_bias = true;  // has no group
    EXPECT_EQ(frozen_parameters(groups({"*:freeze"}), router),
              (std::vector<bool>{true, true, true, true, false}));
}

TEST(ParameterGroups, AreDescribedWithTheirSizes) {
    EXPECT_EQ(describe_parameter_groups({}, tensors(), 0.1F), "");
    EXPECT_EQ(describe_parameter_groups(groups({"transformer.h.*:lr_mult=0.5"}), tensors(), 0.1F),
              "parameter group 'transformer.h.*': 3 tensors, 7.00 M elements, weight decay 0.1 "
              "(vectors 0), learning rate x 0.5\n"
              "parameter group of all other tensors: 2 tensors, 4.00 M elements, weight decay 0.1, "
              "learning rate x 1\n");
    EXPECT_EQ(describe_parameter_groups(groups({"*wte*:freeze", "*:lr_mult=2"}), tensors(), 0.1F),
              "parameter group '*wte*': 1 tensors, 2.00 M elements, frozen\n"
              "parameter group '*': 4 tensors, 9.00 M elements, weight decay 0.1 (vectors 0), "
              "learning rate x 2\n");
}

/// Runs of a small model through train().
class GroupsOfARun : public ::testing::Test {
protected:
    CheckpointRun runs_;
};

TEST_F(GroupsOfARun, WithAFactorForAllAreTheSameRunWithAnotherLearningRate) {
    TrainOptions options = runs_.options();
    options.optimizer.weight_decay = 0.5F;
    options.lr = 1e-2;
    std::vector<std::string> expected = runs_.run(2, options);
    options.lr = 2e-2;  // halving is exact
    options.optimizer.groups = groups({"*:lr_mult=0.5"});
    std::vector<std::string> actual = runs_.run(2, options);
    for (std::vector<std::string>* curve : {&expected, &actual}) {
        for (std::string& step : *curve) step.resize(step.rfind(' '));  // without the learning rate
    }
    EXPECT_EQ(actual, expected);
}

TEST_F(GroupsOfARun, DoTheSameOnOneRankAndOnThreeWithAShardedVocabulary) {
    TrainOptions options = runs_.options();
    options.vocab_mode = VocabMode::one_barrier;
    options.optimizer.weight_decay = 5;  // so that it shows
    const std::vector<double> plain = CheckpointRun::losses(runs_.run(1, options));
    options.optimizer.groups =
        groups({"*wte*:weight_decay=0", "transformer.h.1.*:lr_mult=0.1,weight_decay=1"});
    const std::vector<double> one = CheckpointRun::losses(runs_.run(1, options));
    const std::vector<double> three = CheckpointRun::losses(runs_.run(3, options));
    ASSERT_EQ(one.size(), three.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], three[i], 2e-5) << i;
    EXPECT_GT(std::abs(one.back() - plain.back()), 1e-3) << "groups change nothing";
}

TEST_F(GroupsOfARun, AreWrittenDownWithTheCheckpoint) {
    TrainOptions options = runs_.options();
    options.optimizer.groups = groups({"*bias:lr_mult=2"});
    EXPECT_THAT(shared_flags(options), ::testing::Contains("--param-group *bias:lr_mult=2"));
}

}  // namespace
}  // namespace vocabpipe::testing
