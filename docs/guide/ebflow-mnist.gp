# gnuplot -e "file='ebflow_mnist.dat'" docs/guide/ebflow-mnist.gp      after      accept_ebflow_mnist ebflow_mnist.dat
set terminal pngcairo size 900,560 font ",12"
set output "docs/guide/ebflow-mnist.png"
set logscale x
set xlabel "CPU time of training steps, one thread (s)"
set ylabel "negative log-likelihood of test rows (nats)"
set grid
set xrange [0.2:*]
set yrange [1030:1170]
names = "likelihood sliced denoising differences"
plot for [i=1:4] file index i-1 using 1:3 with lines lw 2 lc i title word(names, i).", last matrix set", \
     for [i=1:4] file index i-1 using 1:2 with lines lw 1 dt 2 lc i title word(names, i).", as trained"
