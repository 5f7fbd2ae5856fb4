# gnuplot -e "file='ebflow_mnist.dat'" docs/guide/ebflow-mnist.gp      after      accept_ebflow_mnist ebflow_mnist.dat
set terminal pngcairo size 900,560 font ",12"
set output "docs/guide/ebflow-mnist.png"
set logscale x
set xlabel "CPU time of training steps, one thread (s)"
set ylabel "negative log-likelihood of test rows (nats)"
set grid
set xrange [0.2:*]
set yrange [1030:1200]
plot file index 0 using 1:2 with lines lw 2 title "maximum likelihood", \
     file index 1 using 1:2 with lines lw 2 title "sliced score matching", \
     file index 2 using 1:2 with lines lw 2 title "denoising score matching", \
     file index 3 using 1:2 with lines lw 2 title "finite differences"
