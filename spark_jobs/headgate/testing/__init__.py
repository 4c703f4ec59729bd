"""What tests of jobs and of Headgate itself are made with: a stand-in for Spark, named faults."""
