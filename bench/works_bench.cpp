// The reference works (works.json), ours: a training step (forward, backward, Adam), the log density of 4096 rows, 4096
// samples, and the bare matrix products of the step.
//   works_bench --quick          `ratio WORK VALUE` for each: step / bare products, in half a minute, one thread
//   works_bench --work nsfc_mini --like nflows --what step [--seconds 5]       the same again and again, for a profiler
//   works_bench --serve          reads lines `WORK LIKE WHAT RUNS`, answers each by a line of JSON: bench/peers.py
// and --threads N (1), --device cpu|cuda; with --work also --precision full|bfloat16. LIKE is one of works.h. Times are
// CPU and wall time.
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <iostream>
#include <limits>
#include <optional>

#include "diffeo/bench/bare_products.h"
#include "diffeo/bench/works.h"
#include "diffeo/layers/base/memory.h"
#include "diffeo/trainers/objective.h"
#include "diffeo/trainers/optimizer.h"

namespace {

using namespace diffeo;
using namespace diffeo::bench;

constexpr int64_t rows_evaluated = 4096;

/// One work in one architecture, made ready to be timed.
class Runner {
 public:
  Runner(const Work& work, const std::string& like, torch::Device device, const std::string& precision = "full")
      : work_(work),
        device_(device),
        flow_((torch::manual_seed(0), flow_of(work, like, precision))),
        objective_((flow_->to(device), flow_)),
        optimizer_(objective_.parameters(), {}),
        batch_{.x = torch::randn({work.batch, work.features}, device), .context = {}, .weight = {}, .label = {}},
        rows_(torch::randn({rows_evaluated, work.features}, device)) {}

  /// One run; for `products`, the best so far.
  Times run(const std::string& what) {
    if (what == "products") {
      products().measure();
      return products().best();
    }
    synchronize();
    const auto start = now();
    if (what == "step")
      step();
    else if (what == "log_prob" || what == "sample")
      evaluate(what == "sample");
    else
      throw Error(c10::str("unknown ", what, "; there are step, log_prob, sample, products"));
    synchronize();
    return since(start);
  }

  BareProducts& products() {
    if (!products_) products_.emplace(linear_maps(*flow_), work_.batch);
    return *products_;
  }

  int64_t parameters() const { return count_of_parameters(*flow_); }

  /// The most memory that was allocated on the device since the last call, in bytes; 0 on the CPU.
  int64_t peak() const {
    if (device_.is_cpu()) return 0;
    auto* allocator = c10::getDeviceAllocator(device_.type());
    const auto peak = allocator->getDeviceStats(0).allocated_bytes[0].peak;
    allocator->resetPeakStats(0);
    return peak;
  }

 private:
  void step() {
    objective_.train();
    optimizer_.zero_grad();
    objective_.loss(batch_).backward();
    optimizer_.step(1e-4, optimizer_.grad_norm().item<double>());
  }

  void evaluate(bool sample) {
    const torch::NoGradGuard no_grad;
    objective_.eval();
    if (sample)
      flow_->sample(rows_evaluated);
    else
      flow_->log_prob(rows_);
  }

  void synchronize() const {
    if (!device_.is_cpu()) c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(0);
  }

  const Work& work_;
  torch::Device device_;
  FlowPtr flow_;
  MaximumLikelihood objective_;
  Optimizer optimizer_;
  Batch batch_;
  Tensor rows_;
  std::optional<BareProducts> products_;
};

/// The quotient of the best CPU times of two things, which take turns for `seconds`, at least two each. A turn is a few
/// runs: in a training loop a step finds in the caches what the step before it left there.
double ratio(Runner& runner, const std::string& above, const std::string& below, double seconds) {
  constexpr int runs = 4;
  double best_above = std::numeric_limits<double>::infinity(), best_below = best_above;
  const auto start = now();
  for (int turn = 0; turn < 2 || since(start).wall < seconds * 1e3; ++turn) {
    for (int i = 0; i < runs; ++i) best_above = std::min(best_above, runner.run(above).cpu);
    for (int i = 0; i < runs; ++i) best_below = std::min(best_below, runner.run(below).cpu);
  }
  return best_above / best_below;
}

void quick() {
  constexpr double seconds = 4;  // for each of the six
  for (const auto& work : all_works()) {
    Runner runner(work, "plain", torch::kCPU);
    std::printf("ratio %s %.3f\n", work.name.c_str(), ratio(runner, "step", "products", seconds));
    std::fflush(stdout);
  }
  Runner runner(work_named("maf_mini"), "plain", torch::kCPU);
  std::printf("ratio maf_mini_sample %.3f\n", ratio(runner, "sample", "log_prob", seconds));
}

/// Keeps what was asked for last: the works take turns slowly.
class Server {
 public:
  explicit Server(torch::Device device) : device_(device) {}

  Json answer(const std::string& request) try {
    std::istringstream words(request);
    std::string work, like, what;
    int runs = 0;
    check(bool(words >> work >> like >> what >> runs), "expected WORK LIKE WHAT RUNS, got ", request);
    if (work + like != current_) {
      runner_.reset();
      runner_.emplace(work_named(work), like, device_);
      current_ = work + like;
    }
    runner_->peak();
    auto times = Json::array();
    for (int i = 0; i < runs; ++i) {
      const auto [cpu, wall] = runner_->run(what);
      times.push_back({cpu, wall});
    }
    Json result{{"parameters", runner_->parameters()}, {"times", times}, {"peak", runner_->peak()}};
    if (what == "products") result["operations"] = runner_->products().operations();
    return result;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return {{"error", text.substr(0, text.find('\n'))}};  // LibTorch appends the stack
  }

 private:
  torch::Device device_;
  std::string current_;
  std::optional<Runner> runner_;
};

void repeat(const std::string& work, const std::string& like, const std::string& what, double seconds,
            torch::Device device, const std::string& precision) {
  Runner runner(work_named(work), like, device, precision);
  runner.run(what);
  std::vector<double> cpu, wall;
  for (const auto start = now(); cpu.empty() || since(start).wall < seconds * 1e3;) {
    const auto times = runner.run(what);
    cpu.push_back(times.cpu);
    wall.push_back(times.wall);
  }
  const auto summary = [](std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    return Json{{"median", times[times.size() / 2]}, {"best", times.front()}};
  };
  Json result{
      {"work", work}, {"like", like}, {"what", what}, {"parameters", runner.parameters()}, {"runs", cpu.size()}};
  result["cpu_ms"] = summary(cpu);
  result["wall_ms"] = summary(wall);
  if (what == "products") result["operations"] = runner.products().operations();
  std::cout << result << std::endl;
}

}  // namespace

int main(int argc, char** argv) try {
  std::map<std::string, std::string> options{{"--work", ""},         {"--like", "plain"}, {"--what", "step"},
                                             {"--seconds", "5"},     {"--threads", "1"},  {"--device", "cpu"},
                                             {"--precision", "full"}};
  std::string mode;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick" || word == "--serve") {
      mode = word;
    } else {
      check(options.contains(word) && i + 1 < argc, "works_bench: unknown option ", word, ", or no value after it");
      options[word] = argv[++i];
    }
  }
  at::set_num_threads(std::stoi(options["--threads"]));
  keep_freed_memory();  // as the program diffeo does
  const torch::Device device(options["--device"]);
  if (mode == "--quick") {
    quick();
  } else if (mode == "--serve") {
    Server server(device);
    for (std::string line; std::getline(std::cin, line);) std::cout << server.answer(line) << std::endl;
  } else {
    check(!options["--work"].empty(), "works_bench: say --quick, --serve or --work NAME");
    repeat(options["--work"], options["--like"], options["--what"], std::stod(options["--seconds"]), device,
           options["--precision"]);
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
