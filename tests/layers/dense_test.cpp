// Dense networks as one node against their definition in plain tensors, and the products that they are made of.
#include "diffeo/layers/nets/dense.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/layers/base/cpu_capability.h"
#include "diffeo/layers/base/gradient_place.h"
#include "diffeo/layers/nets/products.h"

namespace diffeo::dense {
namespace {

/// Largest difference relative to the largest value.
double error_of(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  if (want.numel() == 0) return 0;
  const auto error = ((got - want).abs().max() / (1e-3 + want.abs().max())).item<double>();
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

struct Instance {
  Shape shape;
  Tensor x, context;
  std::vector<Tensor> parameters;

  /// x, the context if it is used, and the parameters.
  std::vector<Tensor> inputs() const {
    std::vector<Tensor> all{x};
    if (shape.gated) all.push_back(context);
    all.insert(all.end(), parameters.begin(), parameters.end());
    return all;
  }
};

Instance instance(const Shape& shape, int64_t rows, int64_t width, torch::Dtype dtype) {
  const int64_t inputs = 5, contexts = 3, outputs = 7;
  Instance made{.shape = shape};
  const auto options = torch::TensorOptions(dtype);
  const auto leaf = [&](at::IntArrayRef sizes) {
    return (torch::randn(sizes, torch::kDouble) * 0.7).to(options).requires_grad_();
  };
  made.x = leaf({rows, inputs});
  made.context = shape.gated ? leaf({rows, contexts}) : Tensor();
  const auto map = [&](int64_t to, int64_t from) {
    made.parameters.push_back(leaf({to, from}));
    made.parameters.push_back(leaf({to}));
  };
  if (shape.residual) {
    map(width, inputs);
    for (int64_t i = 0; i < shape.depth; ++i) {
      map(width, width);
      map(width, width);
      if (shape.gated) map(width, contexts);
    }
    map(outputs, width);
  } else {
    int64_t from = inputs;
    for (int64_t i = 0; i < shape.depth; ++i, from = width) map(width, from);
    map(outputs, from);
  }
  return made;
}

using Form = Tensor (*)(const Shape&, const Tensor&, const Tensor&, at::TensorList);

/// The output, its gradients, and the gradients of a function of those.
std::vector<Tensor> derivatives(Form form, const Instance& given, bool second) {
  const auto output = form(given.shape, given.x, given.context, given.parameters);
  const auto inputs = given.inputs();
  auto first = torch::autograd::grad({output.sin().sum()}, inputs, {}, true, second);
  std::vector<Tensor> all{output};
  all.insert(all.end(), first.begin(), first.end());
  if (!second) return all;
  Tensor scalar = torch::zeros({}, output.options());
  for (const auto& gradient : first) scalar = scalar + gradient.square().sum();
  for (const auto& gradient : torch::autograd::grad({scalar}, inputs)) all.push_back(gradient);
  return all;
}

std::vector<Shape> shapes(const std::string& activation) {
  return {{false, 0, activation}, {false, 1, activation}, {false, 3, activation},
          {true, 0, activation},  {true, 2, activation},  {true, 2, activation, true}};
}

class DenseNet : public ::testing::TestWithParam<CpuCapability> {
 protected:
  CpuCapabilityGuard guard{GetParam()};
};

void expect_the_reference(Form form) {
  torch::manual_seed(11);
  for (const std::string activation : {"relu", "tanh", "silu", "gelu", "elu", "leaky_relu", "softplus", "sigmoid"})
    for (const auto& shape : shapes(activation)) {
      const auto given = instance(shape, 9, 6, torch::kDouble);
      const auto got = derivatives(form, given, true), want = derivatives(reference, given, true);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LT(error_of(got[i], want[i]), 1e-10)
            << activation << (shape.residual ? " residual " : " mlp ") << shape.depth << " tensor " << i;
    }
}

TEST_P(DenseNet, MatchesTheReferenceToTwoDerivatives) { expect_the_reference(apply); }
TEST(DenseByTensors, MatchesTheReferenceToTwoDerivatives) { expect_the_reference(apply_by_tensors); }

void expect_near_float64(Form form, const std::string& activation, double gradient_bound) {
  torch::manual_seed(12);
  for (const int64_t rows : {0, 1, 63, 64, 65, 300})
    for (const int64_t width : {1, 17, 64, 100})
      for (const auto& shape : shapes(activation)) {
        const auto given = instance(shape, rows, width, torch::kFloat);
        auto exact = given;
        const auto precise = [](const Tensor& t) { return t.detach().to(torch::kDouble).requires_grad_(); };
        exact.x = precise(given.x);
        if (shape.gated) exact.context = precise(given.context);
        for (auto& parameter : exact.parameters) parameter = precise(parameter);
        const auto got = derivatives(form, given, false), want = derivatives(reference, exact, false);
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_LT(error_of(got[i].to(torch::kDouble), want[i]), i == 0 ? 1e-5 : gradient_bound)
              << activation << " rows " << rows << " width " << width << (shape.residual ? " residual " : " mlp ")
              << shape.depth << " tensor " << i;
      }
}

void expect_near_float64(Form form) {
  expect_near_float64(form, "tanh", 1e-3);
  // A hidden unit within rounding of zero may be on in one precision and off in the other.
  expect_near_float64(form, "relu", 2e-2);
}

TEST_P(DenseNet, Float32IsNearFloat64) { expect_near_float64(apply); }
TEST(DenseByTensors, Float32IsNearFloat64) { expect_near_float64(apply_by_tensors); }

TEST(DenseByTensors, RunsOnTheGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "needs a GPU and a build with DIFFEO_CUDA";
  torch::manual_seed(17);
  for (const std::string activation : {"relu", "gelu"})
    for (const auto& shape : shapes(activation)) {
      const auto given = instance(shape, 37, 24, torch::kDouble);
      auto there = given;
      const auto moved = [](const Tensor& t) { return t.detach().cuda().requires_grad_(); };
      there.x = moved(given.x);
      if (shape.gated) there.context = moved(given.context);
      for (auto& parameter : there.parameters) parameter = moved(parameter);
      const auto got = derivatives(apply, there, true), want = derivatives(reference, given, true);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LT(error_of(got[i].cpu(), want[i]), 1e-10)
            << activation << (shape.residual ? " residual " : " mlp ") << shape.depth << " tensor " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(, DenseNet, ::testing::ValuesIn(cpu_capabilities()),
                         [](const auto& info) { return to_string(info.param); });

TEST(DenseNode, TakesAnyBatchAndStrides) {
  torch::manual_seed(13);
  const auto given = instance({true, 1, "relu", true}, 12, 8, torch::kDouble);
  const auto want = reference(given.shape, given.x, given.context, given.parameters);
  const auto x = given.x.view({3, 4, 5}).transpose(0, 1), context = given.context.view({3, 4, 3}).transpose(0, 1);
  const auto got = apply(given.shape, x, context, given.parameters);
  ASSERT_EQ(got.sizes(), at::IntArrayRef({4, 3, 7}));
  EXPECT_LT(error_of(got.transpose(0, 1).reshape({12, 7}), want), 1e-12);
  EXPECT_LT(error_of(apply(given.shape, given.x[0], given.context[0], given.parameters), want[0]), 1e-12);
}

void expect_gradients_in_places(Form form) {
  torch::manual_seed(14);
  const auto given = instance({false, 1, "relu"}, 12, 8, torch::kDouble);
  GradientPlaces places;
  std::vector<Tensor> where;
  for (const auto& parameter : given.parameters) {
    where.push_back(torch::zeros_like(parameter));
    places.add(parameter, where.back());
  }
  const auto once = [&] { return form(given.shape, given.x, {}, given.parameters).sin().sum(); };
  const auto want = torch::autograd::grad({once()}, given.parameters);
  for (const auto& gradient : where) EXPECT_EQ(gradient.abs().sum().item<double>(), 0) << "no place was on offer yet";

  places.offer();
  (once() + once()).backward();
  for (size_t i = 0; i < where.size(); ++i) {
    EXPECT_LT(error_of(given.parameters[i].grad(), 2 * want[i]), 1e-12) << "a network used twice: " << i;
    given.parameters[i].mutable_grad().reset();
  }
  places.offer();
  once().backward();
  for (size_t i = 0; i < where.size(); ++i) {
    EXPECT_EQ(given.parameters[i].grad().const_data_ptr(), where[i].const_data_ptr()) << i;
    EXPECT_LT(error_of(where[i], want[i]), 1e-12) << i;
  }
  const auto kept = where[0].clone();
  torch::autograd::grad({once()}, given.parameters);
  EXPECT_TRUE(torch::equal(kept, where[0])) << "the place was taken, so later gradients have memory of their own";
}

TEST(DenseNode, WritesGradientsToTheirPlacesOnce) { expect_gradients_in_places(apply); }
TEST(DenseByTensors, WritesGradientsToTheirPlacesOnce) { expect_gradients_in_places(apply_by_tensors); }

using products::Matrix;

template <class T>
Matrix<T> matrix_of(const Tensor& t) {
  return {t.mutable_data_ptr<T>(), t.size(0), t.size(1), t.stride(0), t.stride(1)};
}

template <class T>
void check_products(torch::Dtype dtype, double bound) {
  torch::manual_seed(15);
  for (const auto& [m, k, n] : std::vector<std::tuple<int, int, int>>{
           {1, 1, 1}, {5, 3, 7}, {64, 64, 64}, {200, 33, 3}, {3, 200, 65}, {0, 4, 4}, {4, 0, 4}, {130, 257, 31}})
    for (int form = 0; form < 64; ++form) {
      const bool ta = form & 1, tb = form & 2, block = form & 4;
      const auto filled = [&](int64_t rows, int64_t columns, bool transposed) {
        const auto whole = torch::randn({(transposed ? columns : rows) + 3, (transposed ? rows : columns) + 5}, dtype);
        auto part = whole.narrow(0, block ? 2 : 0, transposed ? columns : rows)
                        .narrow(1, block ? 4 : 0, transposed ? rows : columns);
        if (!block) part = part.contiguous();
        return transposed ? part.t() : part;
      };
      const auto a = filled(m, k, ta), b = filled(k, n, tb), c = filled(m, n, false), bias = torch::randn({n}, dtype);
      const products::Finish<T> finish{.bias = form & 8 ? bias.template const_data_ptr<T>() : nullptr,
                                       .add = (form & 16) != 0,
                                       .relu = (form & 32) != 0};
      auto want = at::mm(a.to(torch::kDouble), b.to(torch::kDouble));
      if (finish.bias) want = want + bias;
      if (finish.add) want = want + c;
      if (finish.relu) want = want.relu();
      SCOPED_TRACE(c10::str(m, " ", k, " ", n, " form ", form));
      ASSERT_NO_THROW(products::multiply(matrix_of<T>(a), matrix_of<T>(b), matrix_of<T>(c), finish));
      EXPECT_LT(error_of(c.to(torch::kDouble), want), bound);
    }
}

TEST(Products, Float32) { check_products<float>(torch::kFloat, 1e-5); }
TEST(Products, Float64) { check_products<double>(torch::kDouble, 1e-13); }

TEST(Bfloat16, ProductsAreThoseOfTheRoundedFactors) {
  torch::manual_seed(21);
  for (const int64_t m : {1, 3, 64, 200})
    for (const int64_t k : {1, 7, 64})
      for (const int64_t n : {1, 5, 96})
        for (const bool turned : {false, true}) {
          const auto a = turned ? torch::randn({k, m}).t() : torch::randn({m, k});
          const auto b = turned ? torch::randn({n, k}).t() : torch::randn({k, n});
          const auto bias = torch::randn({n});
          const auto c = torch::empty({m, n});
          const auto matrix = [](const Tensor& t) {
            return products::Matrix<const float>{t.const_data_ptr<float>(), t.size(0), t.size(1), t.stride(0),
                                                 t.stride(1)};
          };
          products::multiply(matrix(a), matrix(b), {c.mutable_data_ptr<float>(), m, n},
                             {.bias = bias.const_data_ptr<float>(), .relu = true, .bfloat16 = true});
          const auto rounded = [](const Tensor& t) { return t.to(torch::kBFloat16).to(torch::kDouble); };
          const auto want = (rounded(a).mm(rounded(b)) + bias).relu();
          EXPECT_LT((c - want).abs().max().item<double>(), 1e-5) << m << ' ' << k << ' ' << n << ' ' << turned;
        }
}

TEST(Bfloat16, NetworksAreWithinItsRounding) {
  torch::manual_seed(22);
  for (const std::string activation : {"tanh", "silu"})
    for (auto shape : shapes(activation)) {
      const auto exact = instance(shape, 100, 32, torch::kFloat);
      {
        torch::NoGradGuard no_grad;
        for (auto parameter : exact.parameters) parameter.mul_(0.3);  // as large as what comes in goes out
      }
      auto given = exact;
      given.shape.bfloat16 = true;
      const auto want = derivatives(apply, exact, false), got = derivatives(apply, given, false),
                 oracle = derivatives(reference, given, false);
      for (size_t i = 0; i < want.size(); ++i) {
        // bfloat16 has 8 bits, 0.4 %: a few products one after the other.
        EXPECT_LT(error_of(got[i], want[i]), 0.1) << activation << shape.residual << shape.depth << " tensor " << i;
        EXPECT_LT(error_of(got[i], oracle[i]), 0.1) << activation << shape.residual << shape.depth << " tensor " << i;
      }
      if (shape.depth > 0) {
        EXPECT_GT(error_of(got[0], want[0]), 0) << "nothing was rounded";
      }
      const auto precise = instance(shape, 10, 8, torch::kDouble);
      auto same = precise;
      same.shape.bfloat16 = true;
      EXPECT_TRUE(apply(same.shape, same.x, same.context, same.parameters)
                      .equal(apply(precise.shape, precise.x, precise.context, precise.parameters)))
          << "float64 is left alone";
    }
}

TEST(Dense, TheInputsAloneCanBeAskedFor) {
  const int64_t seed = 5;
  SCOPED_TRACE(c10::str("seed ", seed));
  for (const auto* activation : {"relu", "tanh", "silu"})
    for (const bool residual : {false, true})
      for (const bool gated : {false, true}) {
        if (gated && !residual) continue;
        torch::manual_seed(seed);
        const auto one = instance({.residual = residual, .depth = 2, .activation = activation, .gated = gated}, 9, 13,
                                  torch::kFloat64);
        for (const auto& network : {apply, apply_by_tensors}) {
          const auto output = network(one.shape, one.x, one.context, one.parameters);
          const auto by_output = torch::randn_like(output);
          const auto all = torch::autograd::grad({output}, one.inputs(), {by_output}, true);
          EXPECT_TRUE(torch::autograd::grad({output}, {one.x}, {by_output}, true)[0].equal(all[0]));
          if (gated) EXPECT_TRUE(torch::autograd::grad({output}, {one.context}, {by_output}, true)[0].equal(all[1]));
          // And what was kept for the way back is as it was.
          const auto again = torch::autograd::grad({output}, one.inputs(), {by_output});
          for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(again[i].equal(all[i])) << i;
        }
      }
}

TEST(Dense, PlacesOfGradientsAreLeftAloneWhereNobodyAsksForThem) {
  const auto one = instance({.residual = false, .depth = 1, .activation = "relu"}, 9, 13, torch::kFloat64);
  GradientPlaces places;
  std::vector<Tensor> at;
  for (const auto& parameter : one.parameters) {
    at.push_back(torch::zeros_like(parameter));
    places.add(parameter, at.back());
  }
  places.offer();
  const auto output = apply(one.shape, one.x, one.context, one.parameters);
  torch::autograd::grad({output}, {one.x}, {torch::ones_like(output)}, true);
  for (const auto& place : at) EXPECT_EQ(place.abs().max().item<double>(), 0);
  output.sum().backward();
  for (size_t i = 0; i < at.size(); ++i) EXPECT_TRUE(at[i].equal(one.parameters[i].grad()));
  places.withdraw();
}

}  // namespace
}  // namespace diffeo::dense
