// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "tests/tool/run_program.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

/// A small Llama that has learned to say "abcdabcd..." byte by byte.
class GenerateCommand : public ::testing::Test {
protected:
    static void SetUpTestSuite() {
        folder_ = new TempFolder;
        std::string text;
        for (int i = 0; i < 3000; ++i) text += "abcd";
        write_file(*folder_ / "text.txt", text);
        const Outcome made = in_folder(
            "'" VOCABPIPE_PROGRAM
            "' data prepare --input text.txt --output set && '" TRAIN_GPT_PROGRAM
            "' --transport threads --ranks 2 --data-path set --vocab-size 257 --model-type llama "
            "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --num-query-groups 2 "
            "--seq-length 32 --global-batch-size 4 --train-iters 150 --lr 1e-2 --save steps");
        ASSERT_EQ(made.exit_code, 0) << made.error;
    }
    static void TearDownTestSuite() { delete folder_; }

    static Outcome in_folder(const std::string& command) {
        return run_shell("cd '" + (*folder_ / "") + "' && " + command);
    }
    static Outcome generate(const std::string& arguments) {
        return in_folder("'" VOCABPIPE_PROGRAM "' generate " + arguments);
    }

    static TempFolder* folder_;
};
TempFolder* GenerateCommand::folder_ = nullptr;

TEST_F(GenerateCommand, GoesOnAsTheModelWasTrained) {
    const Outcome greedy =
        generate("--load steps --prompt cdab --temperature 0 --max-new-tokens 8");
    EXPECT_EQ(greedy.exit_code, 0) << greedy.error;
    EXPECT_EQ(greedy.output, "cdabcdabcdab\n");
    const Outcome beyond_the_positions =
        generate("--load steps --prompt abc --top-k 1 --max-new-tokens 40");
    EXPECT_THAT(beyond_the_positions.output,
                StartsWith("abcdabcdabcdabcdabcdabcdabcdabcdabcdabcd"));
}

TEST_F(GenerateCommand, SaysTheSameWithTheSameSeed) {
    const std::string arguments =
        "--load steps --prompt ab --temperature 3 --max-new-tokens 20 --seed ";
    EXPECT_EQ(generate(arguments + "1").output, generate(arguments + "1").output);
    EXPECT_NE(generate(arguments + "1").output, generate(arguments + "2").output);
}

TEST_F(GenerateCommand, SaysTheSameOnAnyNumberOfRanksAndThreads) {
    const std::string arguments =
        "--load steps --prompt ab --temperature 3 --top-p 0.95 --max-new-tokens 50 ";
    const Outcome alone = generate(arguments);
    EXPECT_EQ(alone.exit_code, 0) << alone.error;
    for (const std::string ranks : {"2", "3"}) {  // of 2 layers: one rank has none
        const Outcome threads = generate(arguments + "--threads-per-rank 2 --ranks " + ranks);
        EXPECT_EQ(threads.output, alone.output) << threads.error;
    }
}

TEST_F(GenerateCommand, SaysTheSameOnTensorRanks) {
    const std::string arguments = "--load steps --prompt cdab --temperature 0 --max-new-tokens 40 ";
    const Outcome alone = generate(arguments);
    for (const std::string ranks : {"", " --ranks 4"}) {
        const Outcome shared = generate(arguments + "--tensor-model-parallel-size 2" + ranks);
        EXPECT_EQ(shared.output, alone.output) << shared.error;
    }
    const Outcome odd = generate(arguments + "--tensor-model-parallel-size 2 --ranks 3");
    EXPECT_EQ(odd.exit_code, 2);
    EXPECT_THAT(odd.error, HasSubstr("--tensor-model-parallel-size 2: must divide the number of "
                                     "ranks, 3"));
    const Outcome heads = generate(arguments + "--tensor-model-parallel-size 4");
    EXPECT_EQ(heads.exit_code, 2);
    EXPECT_THAT(heads.error, HasSubstr("--tensor-model-parallel-size 4: --num-query-groups is 2"));
}

TEST_F(GenerateCommand, SaysTheSameOnExpertRanks) {
    const Outcome made = in_folder(
        "'" TRAIN_GPT_PROGRAM
        "' --transport threads --ranks 2 --expert-model-parallel-size 2 --data-path set "
        "--vocab-size 257 --model-type mixtral --num-experts 4 --num-layers 2 --hidden-size 32 "
        "--num-attention-heads 4 --num-query-groups 2 --untie-embeddings-and-output-weights "
        "--pipeline-model-parallel-size 1 --seq-length 32 --global-batch-size 4 --train-iters 100 "
        "--lr 1e-2 --save experts");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    const std::string arguments = "--load experts --prompt cdab --temperature 0 ";
    const Outcome alone = generate(arguments + "--max-new-tokens 40");
    EXPECT_THAT(alone.output, StartsWith("cdabcdabcdab")) << alone.error;
    for (const std::string ranks :
         {"2", "4", "2 --ranks 4", "2 --tensor-model-parallel-size 2", "4 --threads-per-rank 2",
          "1 --expert-tensor-parallel-size 2", "4 --expert-tensor-parallel-size 2",
          "2 --expert-tensor-parallel-size 2 --tensor-model-parallel-size 2"}) {
        const Outcome shared =
            generate(arguments + "--max-new-tokens 40 --expert-model-parallel-size " + ranks);
        EXPECT_EQ(shared.output, alone.output) << ranks << ": " << shared.error;
    }
    for (const auto& [flags, why] :
         {std::pair("2 --ranks 3", "2: must divide the number of ranks, 3"),
          {"8",
           "8: --num-experts is 4, of which every rank needs equally many; use a divisor of "
           "4"},
          {"3 --tensor-model-parallel-size 2 --ranks 6",
           "3: must divide replicas x tensor ranks"}}) {
        const Outcome refused = generate(arguments + "--expert-model-parallel-size " + flags);
        EXPECT_EQ(refused.exit_code, 2);
        EXPECT_THAT(refused.error, HasSubstr("--expert-model-parallel-size " + std::string(why)));
    }
    const Outcome odd = generate(arguments + "--expert-tensor-parallel-size 2 --ranks 3");
    EXPECT_EQ(odd.exit_code, 2);
    EXPECT_THAT(odd.error, HasSubstr("--expert-tensor-parallel-size 2: must divide the number of "
                                     "ranks, 3"));
    const Outcome none = generate("--load steps --prompt ab --expert-model-parallel-size 2");
    EXPECT_EQ(none.exit_code, 2);
    EXPECT_THAT(none.error, HasSubstr("--model-type llama has no experts; use 1"));
}

TEST_F(GenerateCommand, SaysTheSameWithDrafts) {
    const std::string train = "'" TRAIN_GPT_PROGRAM
                              "' --transport threads --ranks 2 --vocab-size 257 --model-type llama "
                              "--num-layers 2 --hidden-size 32 --num-attention-heads 4 "
                              "--seq-length 32 --global-batch-size 4 --train-iters 150 --lr 1e-2 "
                              "--mtp-loss-scaling-factor 0.5 ";
    std::string documents;
    for (int i = 0; i < 1000; ++i) documents += "{\"text\": \"abcdefgh\"}\n";
    write_file(*folder_ / "documents.jsonl", documents);
    const Outcome made = in_folder("'" VOCABPIPE_PROGRAM
                                   "' data prepare --input documents.jsonl --output documents && " +
                                   train + "--data-path set --mtp-num-layers 1 --save depth1 && " +
                                   train + "--data-path set --mtp-num-layers 2 --save depth2 && " +
                                   train + "--data-path documents --mtp-num-layers 2 --save ends");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    for (const std::string model : {"depth1", "depth2"}) {
        for (const std::string prompt : {"c", "cdab"}) {
            // The positions of the model are 32.
            const std::string arguments =
                "--load " + model + " --prompt " + prompt + " --temperature 0 --max-new-tokens 50";
            const Outcome plain = generate(arguments);
            EXPECT_EQ(plain.exit_code, 0) << plain.error;
            for (const std::string ranks : {"1", "2", "3"}) {
                const Outcome drafted = generate(arguments + " --draft-with-mtp --ranks " + ranks);
                EXPECT_EQ(drafted.output, plain.output) << drafted.error;
                EXPECT_THAT(drafted.error,
                            MatchesRegex("vocabpipe: drafted [1-9][0-9]* tokens, accepted "
                                         "[1-9][0-9]* .[0-9.]* %., [12].[0-9]* tokens a "
                                         "forward\n"));
            }
        }
    }
    const Outcome mpi = in_folder(
        "mpirun --allow-run-as-root --oversubscribe -np 2 '" VOCABPIPE_PROGRAM
        "' generate --load depth2 --prompt cdab --top-k 1 --max-new-tokens 8 --draft-with-mtp");
    EXPECT_EQ(mpi.output, "cdabcdabcdab\n") << mpi.error;
    for (const std::string prompt : {"ab", "abcde", "abcdefg", "abcdefgh"}) {
        const std::string arguments = "--load ends --top-k 1 --prompt " + prompt;
        EXPECT_EQ(generate(arguments).output, "abcdefgh\n");
        EXPECT_EQ(generate(arguments + " --draft-with-mtp").output, "abcdefgh\n")
            << "ends with the document";
    }
}

TEST_F(GenerateCommand, RefusesDraftsInOneLine) {
    const std::string arguments = "--load steps --prompt ab --draft-with-mtp ";
    for (const auto& [flags, why] :
         {std::pair("", "--draft-with-mtp: with --temperature 1 tokens are sampled"),
          {"--temperature 0",
           "--draft-with-mtp: the model has no depths of multi-token prediction"},
          {"--temperature 0 --tensor-model-parallel-size 2", "--draft-with-mtp: "}}) {
        const Outcome refused = generate(arguments + flags);
        EXPECT_EQ(refused.exit_code, 2);
        EXPECT_THAT(refused.error, HasSubstr(why));
        EXPECT_EQ(std::ranges::count(refused.error, '\n'), 1) << refused.error;
    }
}

TEST_F(GenerateCommand, SaysTheSameUnderMpirun) {
    const std::string arguments = "--load steps --prompt ab --temperature 3 --max-new-tokens 50 ";
    const Outcome alone = generate(arguments);
    const Outcome ranks = in_folder(
        "mpirun --allow-run-as-root --oversubscribe -np 2 '" VOCABPIPE_PROGRAM "' generate " +
        arguments);
    EXPECT_EQ(ranks.exit_code, 0) << ranks.error;
    EXPECT_EQ(ranks.output, alone.output);
}

TEST_F(GenerateCommand, FindsTheTokenizerOfTheDataInEveryStep) {
    const std::string flags =
        "--transport threads --ranks 2 --vocab-size 280 --num-layers 2 --hidden-size 32 "
        "--num-attention-heads 4 --seq-length 16 --global-batch-size 4 ";
    const Outcome made = in_folder(
        "'" VOCABPIPE_PROGRAM
        "' data prepare --input text.txt --output pieces --tokenizer sentencepiece --vocab-size "
        "280 && '" TRAIN_GPT_PROGRAM
        "' --data-path pieces --train-iters 4 --save-interval 2 "
        "--save-total-limit 1 --save with " +
        flags +
        " && '" TRAIN_GPT_PROGRAM
        "' --data-path pieces.bin --train-iters 6 --load with "
        "--save with " +
        flags);
    ASSERT_EQ(made.exit_code, 0) << made.error;
    EXPECT_EQ(read_file(*folder_ / "with/step-00000006/tokenizer.model"),
              read_file(*folder_ / "pieces.model"));
    EXPECT_FALSE(std::filesystem::exists(*folder_ / "with/step-00000002")) << "removed with it";
    const Outcome text = generate("--load with --prompt ab --max-new-tokens 3");
    EXPECT_EQ(text.exit_code, 0) << text.error;
    EXPECT_THAT(text.output, StartsWith("ab"));
    EXPECT_EQ(in_folder("'" VOCABPIPE_PROGRAM "' checkpoint verify with").exit_code, 0);
}

TEST_F(GenerateCommand, CarriesATokenizerJsonFromTheDataIntoStepsAndConvertedModels) {
    const std::string given = TOKENIZER_CASES "/qwen2/tokenizer.json";
    write_file(*folder_ / "json-tokenizer.json", read_file(given));
    const std::string config = R"({"eos_token": "<|im_end|>"})";
    write_file(*folder_ / "json-tokenizer_config.json", config);
    const Outcome made = in_folder(
        "'" VOCABPIPE_PROGRAM
        "' data prepare --input text.txt --output json --tokenizer-model json-tokenizer.json && "
        "'" VOCABPIPE_PROGRAM "' data inspect json && '" TRAIN_GPT_PROGRAM
        "' --transport threads --ranks 1 --data-path json --vocab-size 424 --num-layers 1 "
        "--hidden-size 16 "
        "--num-attention-heads 2 --seq-length 8 --global-batch-size 2 --train-iters 1 --save "
        "json-steps "
        "&& '" VOCABPIPE_PROGRAM "' checkpoint convert json-steps json-model && '" TRAIN_GPT_PROGRAM
        "' --transport threads --ranks 1 --data-path set --load json-model --seq-length 8 "
        "--global-batch-size 2 --train-iters 1 --save json-again");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    EXPECT_THAT(made.output, HasSubstr("tokenizer      huggingface\n"));
    for (const std::string where :
         {"json.", "json-steps/step-00000001/", "json-model/", "json-again/step-00000001/"}) {
        EXPECT_EQ(read_file(*folder_ / (where + "tokenizer.json")), read_file(given)) << where;
        EXPECT_EQ(read_file(*folder_ / (where + "tokenizer_config.json")), config) << where;
    }
    const Outcome text =
        generate("--load json-steps --prompt '<|im_start|>the  lamb' --max-new-tokens 1");
    EXPECT_EQ(text.exit_code, 0) << text.error;
    EXPECT_THAT(text.output, StartsWith("the  lamb"));
    // Another tokenizer takes the place of all of them.
    const Outcome bytes =
        in_folder("'" VOCABPIPE_PROGRAM "' data prepare --input text.txt --output json");
    EXPECT_EQ(bytes.exit_code, 0) << bytes.error;
    EXPECT_FALSE(std::filesystem::exists(*folder_ / "json.tokenizer.json"));
    EXPECT_FALSE(std::filesystem::exists(*folder_ / "json.tokenizer_config.json"));
}

TEST_F(GenerateCommand, ReadsAndPrintsIds) {
    const std::string flags = "--load steps --temperature 0 --max-new-tokens 4 ";
    EXPECT_EQ(generate(flags + "--prompt cdab --print-ids").output, "99 100 97 98 99 100 97 98\n");
    EXPECT_EQ(generate(flags + "--prompt-ids '99 100,97, 98'").output, "cdabcdab\n");
    for (const auto& [ids, why] :
         {std::pair("1 x", "--prompt-ids: 'x' is no token id"),
          {"-1", "--prompt-ids: '-1' is no token id"},
          {" , ", "--prompt-ids: has no id"},
          {"1 257", "--prompt-ids: the prompt has token 257, the model's vocabulary has 257 rows"},
          {"1' --prompt 'x", "--prompt"}}) {
        const Outcome refused = generate(flags + "--prompt-ids '" + std::string(ids) + "'");
        EXPECT_EQ(refused.exit_code, 2);
        EXPECT_THAT(refused.error, HasSubstr(why));
    }
}

TEST_F(GenerateCommand, NeedsNoTokenizerForIds) {
    const Outcome made = in_folder(
        "'" TRAIN_GPT_PROGRAM
        "' --transport threads --ranks 1 --data-path set --vocab-size 300 --num-layers 1 "
        "--hidden-size 16 "
        "--num-attention-heads 2 --seq-length 8 --global-batch-size 2 --train-iters 1 --save ids");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    const std::string flags = "--load ids --prompt-ids '5 6' --max-new-tokens 2";
    const Outcome text = generate(flags);
    EXPECT_EQ(text.exit_code, 2);
    EXPECT_THAT(text.error, HasSubstr("has no tokenizer.json and no tokenizer.model; give"));
    const Outcome ids = generate(flags + " --print-ids");
    EXPECT_EQ(ids.exit_code, 0) << ids.error;
    EXPECT_THAT(ids.output, StartsWith("5 6 "));
}

TEST_F(GenerateCommand, ReadsThePromptOfStandardInput) {
    const Outcome read = in_folder("printf cdab | '" VOCABPIPE_PROGRAM
                                   "' generate --load steps --prompt - --temperature 0 "
                                   "--max-new-tokens 8 --ranks 2");
    EXPECT_EQ(read.output, "cdabcdabcdab\n") << read.error;
}

TEST_F(GenerateCommand, EndsWhereItIsInterrupted) {
    const Outcome ended =
        in_folder("timeout --preserve-status --signal INT 2 '" VOCABPIPE_PROGRAM
                  "' generate --load steps --prompt ab --ranks 2 --max-new-tokens 100000000");
    EXPECT_EQ(ended.exit_code, 130) << ended.error;
    EXPECT_THAT(ended.output, StartsWith("ab"));
    EXPECT_THAT(ended.output, ::testing::EndsWith("\n"));
}

TEST_F(GenerateCommand, RefusesInOneLineWhatItCannotRead) {
    const Outcome nowhere = generate("--load nowhere --prompt a");
    EXPECT_EQ(nowhere.exit_code, 3);
    EXPECT_THAT(nowhere.error, HasSubstr("nowhere"));
    const Outcome no_model = generate("--load steps --prompt a --tokenizer-model text.txt");
    EXPECT_EQ(no_model.exit_code, 3);
    EXPECT_THAT(no_model.error, HasSubstr("text.txt"));
    const Outcome hot = generate("--load steps --prompt a --temperature -1");
    EXPECT_EQ(hot.exit_code, 2);
    EXPECT_THAT(hot.error, HasSubstr("--temperature"));
    const Outcome endless =
        in_folder("'" VOCABPIPE_PROGRAM "' generate --load steps --prompt - < /dev/zero");
    EXPECT_EQ(endless.exit_code, 2);
    EXPECT_THAT(endless.error, HasSubstr("--prompt -: standard input has more than 1048576 bytes"));
}

TEST_F(GenerateCommand, ReadsMoreTokensThanARotaryModelWasMadeFor) {
    const Outcome beyond =
        generate("--load steps --prompt abcd --temperature 0 --max-new-tokens 44 --seq-length 48");
    EXPECT_EQ(beyond.exit_code, 0) << beyond.error;
    EXPECT_THAT(beyond.output, StartsWith("abcdabcdabcdabcd"));
}

TEST_F(GenerateCommand, EndsWithSevenWhereTheModelHasDiverged) {
    const Outcome made = in_folder(
        "'" VOCABPIPE_PROGRAM
        "' checkpoint convert steps diverged && cd diverged && "
        "size=$(stat -c %s model.safetensors) && head -c 256 /dev/zero | tr '\\0' '\\377' | "
        "dd of=model.safetensors bs=1 seek=$((size - 256)) conv=notrunc status=none");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    const Outcome ended = generate("--load diverged --prompt a --tokenizer bytes");
    EXPECT_EQ(ended.exit_code, 7) << ended.error;
    EXPECT_THAT(ended.error, HasSubstr("logits are not all finite"));
}

TEST_F(GenerateCommand, TrainingGoesOnWithTheModelThatLoadNamesOrAnotherOfItsConfig) {
    const std::string train = "'" TRAIN_GPT_PROGRAM
                              "' --transport threads --ranks 2 --data-path set --seq-length 32 "
                              "--global-batch-size 4 --train-iters 151 --lr 1e-2 ";
    const Outcome resumed = in_folder(train + "--load steps");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.error;
    EXPECT_THAT(resumed.output, HasSubstr("continuing after step 150"));
    const Outcome anew =
        in_folder(train + "--model steps/step-00000150/config.json --train-iters 1");
    EXPECT_EQ(anew.exit_code, 0) << anew.error;
    EXPECT_THAT(anew.output, HasSubstr("lm loss 5."));  // ln 257: knows nothing
    const Outcome twice = in_folder(train + "--model steps/step-00000150 --hidden-size 64");
    EXPECT_EQ(twice.exit_code, 2);
    EXPECT_THAT(twice.error,
                HasSubstr("--hidden-size: --model steps/step-00000150 already sets this"));
}

}  // namespace
}  // namespace vocabpipe::testing
